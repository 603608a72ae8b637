"""T-22: the flow end to end: a real Prefect server, the deployment, the artifact, the event."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from typing import Any

import anyio
import psycopg
import pytest
from prefect import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterKey,
    TaskRunFilter,
    TaskRunFilterState,
)
from prefect.client.schemas.filters import TaskRunFilterStateType as StateTypes
from prefect.client.schemas.objects import StateType
from prefect.client.schemas.sorting import ArtifactSort
from prefect.settings import PREFECT_API_URL

from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.deployments.served import served
from durable_jobs.errors import RetentionTooShort, RetentionViolated
from durable_jobs.flows.jobs_purge import jobs_purge
from tests.support.history import DAY, add_chain, add_event, add_job, add_jobs, job_ids, rows_of

pytestmark = pytest.mark.usefixtures("prefect_harness")

OLD, YOUNG = 31 * DAY, 29 * DAY + timedelta(hours=20)


@pytest.fixture
def owner(
    database_url: str, owner_connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> psycopg.Connection:
    """The owner of the database that the flow uses; no Redis is configured."""
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", database_url)
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "production")
    monkeypatch.delenv("DURABLE_JOBS_REDIS_URL", raising=False)
    return owner_connection


async def artifact() -> str:
    """The newest artifact of the flow."""
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=["jobs-purge"]))
    async with get_client() as client:
        [newest] = await client.read_artifacts(
            artifact_filter=wanted, sort=ArtifactSort.CREATED_DESC, limit=1
        )
    return str(newest.data)


def events(owner: psycopg.Connection) -> list[tuple[Any, ...]]:
    """Events of purges, oldest first."""
    rows = owner.execute(
        "SELECT event, severity, payload FROM job_events WHERE event ~ '^jobs.(purge|retention)' ORDER BY occurred_at"
    )
    return rows.fetchall()


async def test_t22_the_flow_purges_what_is_due_and_tells_what_went_and_what_stays(
    owner: psycopg.Connection,
) -> None:
    add_jobs(owner, 5, OLD, job_type="MAIL")
    add_jobs(owner, 3, 100 * DAY, tenant="beta", state="FAILED", effects=True)
    stays = {add_job(owner, YOUNG), add_job(owner, None), *add_chain(owner, [OLD, DAY])}
    add_event(owner, OLD, tenant=None)
    figures = await jobs_purge()
    assert job_ids(owner) == stays
    assert (figures["jobs"], figures["events"], figures["effects"], figures["dryRun"]) == (8, 1, 3, False)
    [(event, severity, payload)] = events(owner)
    assert (event, severity) == ("jobs.purge.completed", "INFO")
    assert (payload["jobs"], payload["tenants"], payload["redis"]) == (8, 2, 0)
    text = await artifact()
    assert "**8** jobs" in text
    assert "Proved: nothing due is left" in text
    assert "| acme | MAIL | SUCCEEDED | 5 |" in text
    assert "| beta | WORK | FAILED | 3 |" in text
    assert "data:image/svg+xml;base64," in text
    assert "| over 60 days | 0 | 3 |" in text
    assert "| 30 to 60 days | 1 | 5 |" in text
    assert "| older jobs of chains | 1 | a retry of theirs is not due yet |" in text
    assert "| jobs that wait or run | 1 | never go |" in text
    assert (await jobs_purge())["jobs"] == 0


async def test_a_dry_run_says_what_would_go_and_takes_nothing(owner: psycopg.Connection) -> None:
    add_jobs(owner, 5, OLD, effects=True)
    figures = await jobs_purge(dry_run=True)
    assert (figures["jobs"], figures["dryRun"]) == (5, True)
    assert rows_of(owner, "job_history") == 5
    assert events(owner) == []
    assert rows_of(owner, "purge_runs") == 0
    text = await artifact()
    assert "A dry run: nothing went. A purge now would take **5** jobs" in text
    assert (await jobs_purge())["jobs"] == 5


async def test_a_run_that_left_something_fails_and_names_it_everywhere(
    owner: psycopg.Connection, admin_url: str
) -> None:
    held = add_job(owner, OLD)
    with psycopg.connect(admin_url) as other:
        other.execute("SELECT FROM job_history WHERE job_id = %s FOR UPDATE", [held])
        with pytest.raises(RetentionViolated, match=str(held)):
            await jobs_purge()
        assert f"1 jobs are due and still there (such as {held})" in (await artifact()).replace("\\", "")
        with pytest.raises(RetentionViolated):
            await jobs_purge()
    assert [event for event, *_ in events(owner)] == ["jobs.retention.violated"]
    failed = TaskRunFilter(state=TaskRunFilterState(type=StateTypes(any_=[StateType.FAILED])))
    async with get_client() as client:
        names = {run.name.rsplit("-", 1)[0] for run in await client.read_task_runs(task_run_filter=failed)}
    assert "verify_retention" in names


async def test_a_retention_under_the_floor_is_refused(
    owner: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = add_job(owner, 2 * DAY)
    with pytest.raises(RetentionTooShort, match="under the floor of 1 day"):
        await jobs_purge(retention=timedelta(hours=1))
    monkeypatch.setenv("DURABLE_JOBS_MIN_RETENTION", "P3D")
    with pytest.raises(RetentionTooShort, match="DURABLE_JOBS_MIN_RETENTION"):
        await jobs_purge(retention=2 * DAY)
    assert job_ids(owner) == {job_id}


async def test_t22_the_deployment_takes_its_retention_as_a_duration(owner: psycopg.Connection) -> None:
    """Through the deployment, in a process of its own, as the cron starts it."""
    [entry] = [entry for entry in read_manifest() if "jobs_purge" in entry["entrypoint"]]
    deployment = served(entry)
    schema = deployment._parameter_openapi_schema.properties
    assert schema["retention"]["format"] == "duration"
    assert all(parameter["description"] for parameter in schema.values())
    [schedule] = entry["schedules"]
    assert (schedule["cron"], schedule["timezone"]) == ("0 3 * * *", "UTC")
    deployment_id = await deployment.aapply()
    young = add_job(owner, YOUNG)
    add_job(owner, 30 * DAY + timedelta(minutes=5))
    async with get_client() as client:
        run = await client.create_flow_run_from_deployment(deployment_id, parameters={"retention": "P30D"})
    environment = os.environ | {"PREFECT_API_URL": str(PREFECT_API_URL.value())}
    command = [sys.executable, "-m", "prefect", "flow-run", "execute", str(run.id)]
    await anyio.run_process(command, env=environment, check=False, stderr=subprocess.STDOUT)
    async with get_client() as client:
        state = (await client.read_flow_run(run.id)).state
    assert state is not None
    assert state.is_completed(), state.message
    assert job_ids(owner) == {young}
