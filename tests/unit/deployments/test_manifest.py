"""prefect.yaml fits the installed Prefect, the flows and the reference; misspelt keys are ignored by Prefect itself."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.cli.deploy._models import (
    ConcurrencyLimitSpec,
    DeploymentConfig,
    PrefectYamlModel,
    RawScheduleConfig,
    WorkPoolConfig,
)
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.server.schemas.schedules import CronSchedule
from prefect.utilities.callables import parameter_schema
from pydantic import BaseModel

from durable_jobs.deployments.deploy_deployments import wanted_deployment
from durable_jobs.deployments.manifest import read_manifest

ROOT = Path(__file__).parents[3]
ENTRIES = read_manifest()
OURS = {"definitions"}
"""Our own top-level key, which only holds anchors."""


def name_of(entry: dict[str, Any]) -> str:
    return f"{load(entry).name}/{entry['name']}"


def load(entry: dict[str, Any]) -> Flow[..., Any]:
    flow: Flow[..., Any] = load_flow_from_entrypoint(entry["entrypoint"])
    return flow


def unknown_keys(document: dict[str, Any], model: type[BaseModel]) -> set[str]:
    fields = model.model_fields.items()
    return set(document) - {name for name, _ in fields} - {field.alias for _, field in fields if field.alias}


def all_unknown_keys(manifest: dict[str, Any]) -> set[str]:
    """Return the keys that no model of the installed Prefect has."""
    found = unknown_keys(manifest, PrefectYamlModel) - OURS
    for entry in manifest["deployments"]:
        found |= unknown_keys(entry, DeploymentConfig)
        found |= unknown_keys(entry.get("work_pool", {}), WorkPoolConfig)
        if isinstance(limit := entry.get("concurrency_limit"), dict):
            found |= unknown_keys(limit, ConcurrencyLimitSpec)
        for schedule in entry.get("schedules", []):
            found |= unknown_keys(schedule, RawScheduleConfig)
    return found


def test_no_key_is_unknown_to_prefect() -> None:
    manifest = yaml.safe_load((resources.files("durable_jobs") / "prefect.yaml").read_text("utf-8"))
    PrefectYamlModel.model_validate(manifest)
    assert all_unknown_keys(manifest) == set()
    manifest["deployments"][0] |= {"work_pol": {}, "schedules": [{"crom": "* * * * *"}]}
    assert all_unknown_keys(manifest) == {"work_pol", "crom"}


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_every_deployment_loads_and_its_parameters_fit(entry: dict[str, Any]) -> None:
    flow = load(entry)
    given = [entry.get("parameters") or {}]
    given += [given[0] | (schedule.get("parameters") or {}) for schedule in entry.get("schedules", [])]
    for parameters in given:
        assert set(parameters) <= set(parameter_schema(flow).properties)
        if entry.get("schedules"):
            flow.validate_parameters(parameters)


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_every_schedule_has_a_name_by_which_its_pause_is_kept(entry: dict[str, Any]) -> None:
    wanted = wanted_deployment(entry, ["SOME_TYPE"], {})
    assert wanted.full_name == name_of(entry)
    assert all(schedule["slug"] for schedule in wanted.schedules)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.get("schedules")], ids=name_of)
def test_every_cron_comes_round_within_a_day(entry: dict[str, Any]) -> None:
    for schedule in entry["schedules"]:
        cron = CronSchedule(cron=schedule["cron"], timezone=schedule["timezone"])
        first, second = asyncio.run(cron.get_dates(2, start=datetime(2030, 1, 31, tzinfo=UTC)))
        assert timedelta(0) < second - first <= timedelta(days=1)


def test_what_is_no_cron_is_found() -> None:
    with pytest.raises(ValueError, match="cron"):
        CronSchedule(cron="*/5 * * *", timezone="UTC")


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_the_reference_names_it_with_its_cron_and_parameters(entry: dict[str, Any]) -> None:
    text = (ROOT / "docs" / "reference" / "deployments.md").read_text("utf-8")
    row = re.search(rf"^\| `{re.escape(name_of(entry))}` \|(.*?)\|(.*?)\|", text, re.MULTILINE)
    assert row is not None
    assert re.findall("`(.*?)`", row[1]) == [schedule["cron"] for schedule in entry.get("schedules", [])]
    assert re.findall("`(.*?)`", row[2]) == list(parameter_schema(load(entry)).properties)


def test_the_readme_names_every_deployment() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert set(re.findall(r"^\| `([\w-]+/[\w-]+)` \|", text, re.MULTILINE)) == set(map(name_of, ENTRIES))


@pytest.mark.parametrize("entry", ENTRIES, ids=name_of)
def test_its_form_says_what_each_parameter_is(entry: dict[str, Any]) -> None:
    fields = parameter_schema(load(entry)).properties
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_nothing_waits_in_the_memory_of_a_prefect_server() -> None:
    sources = [
        p
        for folder in ("src", "flows", "tasks", "blocks", "deployments")
        for p in (ROOT / folder).rglob("*.py")
    ]
    assert sources
    using = [
        p for p in sources if re.search(r"\.(delay|apply_async)\(|\btask_worker\b", p.read_text("utf-8"))
    ]
    assert using == []
