"""No automation of ours can start itself, and none fits every event."""

from __future__ import annotations

from typing import Any

import pytest

from durable_jobs.deployments.automations import UnsafeAutomation, read_automations, require_safe
from durable_jobs.deployments.manifest import read_manifest

RUN = {"type": "run-deployment", "deployment": "jobs-dlq-retry/every-15-minutes"}


def automation(expect: list[str], match: dict[str, str], action: dict[str, str]) -> dict[str, Any]:
    return {"name": "x", "trigger": {"expect": expect, "match": match}, "actions": [action]}


def test_what_we_ship_is_safe() -> None:
    shipped = read_automations()
    assert len({automation["name"] for automation in shipped}) == 4
    for one in shipped:
        require_safe(one)


@pytest.mark.parametrize(
    "expected",
    [
        "jobs.job.failed",
        "jobs.*",
        "*",
        "j*",
        "prefect.flow-run.Failed",
        "prefect.*",
        "redis.health.recovered",
    ],
)
def test_what_our_flows_leave_starts_no_deployment(expected: str) -> None:
    with pytest.raises(UnsafeAutomation, match="start it again and again"):
        require_safe(automation([expected], {"prefect.resource.id": "durable-jobs.*"}, RUN))


@pytest.mark.parametrize(("expect", "match"), [([], {"a": "b"}), (["x"], {})])
def test_an_empty_match_is_refused(expect: list[str], match: dict[str, str]) -> None:
    with pytest.raises(UnsafeAutomation, match="every event"):
        require_safe(automation(expect, match, {"type": "do-nothing"}))


def test_runs_with_the_tag_of_watched_deployments_may_start_a_deployment_and_none_of_ours_has_it() -> None:
    one = automation(["prefect.flow-run.Failed"], {"prefect.resource.id": "prefect.flow-run.*"}, RUN)
    with pytest.raises(UnsafeAutomation):
        require_safe(one)
    one["trigger"]["match_related"] = {"prefect.resource.id": "prefect.tag.durable"}
    require_safe(one)
    one["trigger"]["expect"] = ["*"]
    with pytest.raises(UnsafeAutomation):
        require_safe(one)
    assert not any("durable" in entry["tags"] for entry in read_manifest())


def test_events_of_others_may_start_a_deployment() -> None:
    require_safe(automation(["durable-jobs.submit", "orders.*"], {"a": "b"}, RUN))
