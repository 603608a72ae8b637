"""Three deployments of somebody else that fail, crash and hang, and one that never works: kept, retried, done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import VariableCreate
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL
from psycopg.rows import dict_row

from durable_jobs.flow_runs.policy import VARIABLE
from durable_jobs.flows.collect_flow_runs import collect_flow_runs
from durable_jobs.flows.execute_jobs import execute_jobs
from durable_jobs.flows.jobs_dlq_retry import jobs_dlq_retry
from tests.integration.flows.prefect_records import Records
from tests.support.eventually import eventually
from tests.support.processes import ROOT

pytestmark = pytest.mark.timeout(900)
LONG = timedelta(seconds=240)
OFTEN = timedelta(milliseconds=300)
SECRET = "tr0ub4dor-and-three"
NAMES = ("fails", "crashes", "hangs", "never-works")


@pytest.fixture
def runner(prefect_harness: None, tmp_path: Path) -> Iterator[None]:
    """A process of theirs that serves their deployments."""
    environment = os.environ | {
        "PREFECT_API_URL": PREFECT_API_URL.value(),
        "PREFECT_HOME": str(tmp_path / "home"),
    }
    with (tmp_path / "runner.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.flows.their_runner"],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def deployments(client: PrefectClient) -> dict[str, UUID]:
    async def found() -> dict[str, UUID] | None:
        try:
            return {n: (await client.read_deployment_by_name(f"{n}/theirs")).id for n in NAMES}
        except ObjectNotFound:
            return None

    return await eventually(found, LONG, every=OFTEN)  # type: ignore[return-value] -- it is true by then


async def execute() -> None:
    await execute_jobs(until_empty=True, queues=["prefect-flow-runs"])


def jobs(owner: psycopg.Connection) -> dict[str, list[dict[str, Any]]]:
    """Return the chains by deployment, oldest job first."""
    with owner.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute("SELECT * FROM job_history ORDER BY retry_count, job_id").fetchall()
    by_name: dict[str, list[dict[str, Any]]] = {name: [] for name in NAMES}
    for row in rows:
        by_name[row["payload"]["deployment"].partition("/")[0]].append(row)
    return by_name


async def ended(client: PrefectClient, runs: dict[str, FlowRun], *names: str) -> dict[str, FlowRun]:
    async def all_ended() -> dict[str, FlowRun] | None:
        now = {name: await client.read_flow_run(runs[name].id) for name in names}
        return now if all(run.state is not None and run.state.is_final() for run in now.values()) else None

    return await eventually(all_ended, LONG, every=OFTEN)  # type: ignore[return-value] -- it is true by then


async def test_what_fails_crashes_and_hangs_is_kept_retried_and_succeeds_or_is_given_up(
    client: PrefectClient, owner: psycopg.Connection, records: Records, runner: None, tmp_path: Path
) -> None:
    ids = await deployments(client)
    given: dict[str, dict[str, Any]] = {n: {"folder": str(tmp_path)} for n in NAMES} | {"never-works": {}}
    given["fails"]["word"] = SECRET
    runs = {n: await client.create_flow_run_from_deployment(ids[n], parameters=given[n]) for n in NAMES}
    first = await ended(client, runs, "fails", "crashes", "never-works")
    assert {name: run.state_name for name, run in first.items()} == {
        "fails": "Failed",
        "crashes": "Crashed",
        "never-works": "Failed",
    }
    await eventually((tmp_path / "hangs").exists, LONG)
    await client.create_variable(
        VariableCreate(name=VARIABLE, value={"hangs/theirs": {"timeout": 0.5, "max_retries": 2}})
    )

    state: Any = await collect_flow_runs(return_state=True)
    counts = await state.result()
    assert (counts["deployments"], counts["kept"], counts["hung"]) == (4, 4, 1)
    # The window is replayed at once, and nothing is kept twice.
    assert (await collect_flow_runs())["kept"] == 0
    await client.delete_variable_by_name(VARIABLE)
    kept = {name: chain[0] for name, chain in jobs(owner).items()}
    assert {name: (job["state"], job["max_retries"]) for name, job in kept.items()} == {
        "fails": ("FAILED", 2),
        "crashes": ("FAILED", 3),
        "hangs": ("FAILED", 2),
        "never-works": ("FAILED", 1),
    }
    assert kept["fails"]["payload"]["parameters"]["word"] == SECRET
    for name, run in runs.items():
        assert kept[name]["flow_run_id"] == run.id
        assert f"durable-job:{kept[name]['job_id']}" in (await client.read_flow_run(run.id)).tags
    assert kept["fails"]["failed_reason"].startswith("FlowRunFailed: fails/theirs: Failed: ")
    assert "ValueError: the password *** is wrong" in kept["fails"]["failed_reason"]
    assert "-9" in kept["crashes"]["failed_reason"]
    assert "timed out after PT0.5S" in kept["hangs"]["failed_reason"]
    shown = await records.artifacts(state.state_details.flow_run_id)
    assert str(kept["crashes"]["job_id"]) in shown["collected-flow-runs"]

    assert (await jobs_dlq_retry())["retried"] == 4
    await execute()
    chains = jobs(owner)
    for name in ("fails", "crashes", "hangs"):
        assert [job["state"] for job in chains[name]] == ["RETRIED", "SUCCEEDED"], chains[name]
        again = await client.read_flow_run(chains[name][1]["flow_run_id"])
        assert again.id != runs[name].id
        assert again.parameters == (await client.read_flow_run(runs[name].id)).parameters
        assert chains[name][1]["result"]["value"]["flow_run_id"] == str(again.id)
    assert [job["state"] for job in chains["never-works"]] == ["RETRIED", "FAILED"]

    # What a retry started belongs to its chain.
    assert (await collect_flow_runs())["kept"] == 0
    await jobs_dlq_retry()
    assert [job["state"] for job in jobs(owner)["never-works"]] == ["RETRIED", "ABANDONED"]
    told = json.dumps(owner.execute("SELECT event, payload FROM job_events").fetchall(), default=str)
    assert "jobs.job.abandoned" in told
    artifacts = await client.read_artifacts(limit=200)
    assert artifacts
    assert SECRET not in told + "".join(str(artifact.data) for artifact in artifacts)
