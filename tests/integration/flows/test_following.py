"""A job follows its flow run, and each learns what became of the other; a real server, with the test as worker."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from prefect.client.orchestration import PrefectClient
from prefect.states import (
    AwaitingConcurrencySlot,
    Cancelled,
    Cancelling,
    Crashed,
    Late,
    Paused,
    Running,
    Suspended,
)
from uuid_utils.compat import uuid7

from durable_jobs import JobState, register_jobs
from durable_jobs.executor.execution import Stop
from durable_jobs.flow_runs.job_type import NAME
from durable_jobs.reconciling import Reconciler
from durable_jobs.stores.protocols import Executor
from durable_jobs.tasks import run_watching
from durable_jobs.tasks.run_agreement import agree_with_prefect
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.integration.flows.following import (
    LONG,
    QUEUE,
    ended,
    followed,
    new_shift,
    on_duty,
    read,
    run_of,
    submitted,
)
from tests.integration.flows.their_deployments import Theirs
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(300)


async def test_the_message_of_the_run_becomes_the_jobs(runtime: OpenRuntime, theirs: Theirs) -> None:
    job = await submitted(await theirs.deploy("their-tag"), n=3)
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        assert (run.parameters, f"durable-job:{job.job_id}" in run.tags) == ({"n": 3}, True)
        await theirs.complete(run.id, "three rows loaded")
        done = await ended(runtime, job.job_id)
    assert (done.state, done.flow_run_id) == (JobState.SUCCEEDED, run.id)
    assert done.result["value"] == {
        "flow_run_id": str(run.id),
        "state": "Completed",
        "message": "three rows loaded",
        "result": None,
    }


@pytest.mark.parametrize(
    ("state", "becomes", "retryable", "reason"),
    [
        (
            Cancelled(message="Flow run was cancelled successfully."),
            "CANCELLED",
            True,
            "was cancelled in Prefect",
        ),
        (
            Cancelled(message="Runner is shutting down."),
            "FAILED",
            True,
            "Cancelled: Runner is shutting down.",
        ),
        (
            Cancelled(message="Deployment concurrency limit reached."),
            "FAILED",
            True,
            "Cancelled: Deployment concurrency limit reached.",
        ),
        (Crashed(message="Process exited with status code: -9"), "FAILED", True, "Crashed: Process exited"),
    ],
    ids=["person", "shutdown", "limit", "crash"],
)
async def test_who_ended_a_run_decides_what_becomes_of_the_job(
    runtime: OpenRuntime, theirs: Theirs, state: Any, becomes: str, retryable: bool, reason: str
) -> None:
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        await theirs.run(run.id)
        await theirs.set(run.id, state)
        done = await ended(runtime, job.job_id)
    assert (done.state, done.retryable) == (becomes, retryable)
    assert reason in (done.failed_reason or "")


async def test_a_policy_that_forbids_retries_holds_for_submitted_jobs_too(
    runtime: OpenRuntime, theirs: Theirs
) -> None:
    job = await submitted(await theirs.deploy("durable", "durable:not-retryable"))
    async with on_duty(runtime):
        await theirs.fail((await run_of(theirs, job.job_id)).id)
        done = await ended(runtime, job.job_id)
    assert (done.state, done.retryable) == (JobState.FAILED, False)


async def test_every_state_that_is_no_end_is_waited_for(runtime: OpenRuntime, theirs: Theirs) -> None:
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        now = datetime.now(UTC)
        waiting = (
            Late(scheduled_time=now),
            AwaitingConcurrencySlot(scheduled_time=now),
            Paused(timeout_seconds=3600),
            Suspended(timeout_seconds=3600),
            Running(),
            Cancelling(),
        )
        for state in waiting:
            await theirs.set(run.id, state)
            await seen_again(theirs)
            assert (await read(runtime, job.job_id)).state is JobState.RUNNING, state.name
        await theirs.complete(run.id)
        assert (await ended(runtime, job.job_id)).state is JobState.SUCCEEDED
    assert len(await theirs.runs_of(job.job_id)) == 1


async def seen_again(theirs: Theirs) -> None:
    """Wait until the watcher has looked twice: another run's end is told by a later look."""
    for _ in range(2):
        other = await theirs.start(await theirs.deploy())
        await theirs.complete(other.id)
        assert await run_watching.watcher().end_of(other.id) is not None


async def test_cancelling_the_job_cancels_the_run(runtime: OpenRuntime, theirs: Theirs) -> None:
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        await followed(runtime, job.job_id)
        await theirs.run(run.id)
        with job_tenant_scope("default"):
            await runtime.store.cancel(job.job_id)
        assert (await ended(runtime, job.job_id)).state is JobState.CANCELLED
    if await theirs.state(run.id) == "Running":
        # A server that takes seconds to answer leaves it to the collector.
        await agree_with_prefect.fn(runtime)
    assert await theirs.state(run.id) == "Cancelling"


async def test_the_run_of_a_job_cancelled_between_two_shifts_is_cancelled_by_the_collector(
    runtime: OpenRuntime, theirs: Theirs
) -> None:
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        await followed(runtime, job.job_id)
    await theirs.run(run.id)
    with job_tenant_scope("default"):
        assert (await runtime.store.cancel(job.job_id)).state is JobState.CANCELLED
    assert (await agree_with_prefect.fn(runtime)).runs_cancelled == 1
    assert await theirs.state(run.id) == "Cancelling"
    assert (await agree_with_prefect.fn(runtime)).runs_cancelled == 0


async def test_a_deployment_that_is_gone_is_no_reason_to_retry(runtime: OpenRuntime, theirs: Theirs) -> None:
    job = await submitted("theirs/nowhere")
    async with on_duty(runtime):
        done = await ended(runtime, job.job_id)
    assert (done.state, done.retryable) == (JobState.FAILED, False)
    assert "deployment 'theirs/nowhere' does not exist" in (done.failed_reason or "")


async def test_parameters_that_fit_no_more_are_named_and_not_quoted(
    runtime: OpenRuntime, theirs: Theirs
) -> None:
    job = await submitted(await theirs.deploy(), n="tr0ub4dor")
    async with on_duty(runtime):
        done = await ended(runtime, job.job_id)
    assert (done.state, done.retryable) == (JobState.FAILED, False)
    assert "the parameters (n) do not fit its parameter schema" in (done.failed_reason or "")
    assert "tr0ub4dor" not in (done.failed_reason or "")


async def test_a_run_that_a_person_deletes_ends_the_job(
    runtime: OpenRuntime, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_watching, "LOOK_FOR_DELETED_EVERY", 2)
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        await followed(runtime, job.job_id)
        await theirs.client.delete_flow_run(run.id)
        done = await ended(runtime, job.job_id)
    assert (done.state, done.retryable) == (JobState.FAILED, False)
    assert "was deleted in Prefect" in (done.failed_reason or "")


async def test_a_relieved_shift_hands_the_run_over_and_nothing_starts_twice(
    runtime: OpenRuntime, theirs: Theirs
) -> None:
    job = await submitted(await theirs.deploy())
    first, second = new_shift(runtime), new_shift(runtime)
    relieved = asyncio.create_task(first.run())
    run = await run_of(theirs, job.job_id)
    await followed(runtime, job.job_id)
    successor = asyncio.create_task(second.run())
    assert (await asyncio.wait_for(relieved, LONG.total_seconds())).ended_because == "relieved"

    async def taken_over() -> bool:
        return (await read(runtime, job.job_id)).executor_id == second.executor.executor_id

    await eventually(taken_over, LONG)
    await theirs.complete(run.id)
    done = await ended(runtime, job.job_id)
    second.leave("the test is over", Stop.SHUTDOWN)
    await successor
    assert (done.state, done.crash_count) == (JobState.SUCCEEDED, 0)
    assert [one.id for one in await theirs.runs_of(job.job_id)] == [run.id]


async def test_a_shift_told_to_stop_gives_the_run_back_at_once(runtime: OpenRuntime, theirs: Theirs) -> None:
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime) as shift:
        await followed(runtime, job.job_id)
    assert shift.summary.released == 1
    assert (await read(runtime, job.job_id)).state is JobState.PENDING
    assert await theirs.state((await run_of(theirs, job.job_id)).id) in ("Scheduled", "Late")


async def test_a_crash_of_the_shift_is_not_the_runs_fault(runtime: OpenRuntime, theirs: Theirs) -> None:
    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        await followed(runtime, job.job_id)
    run = await run_of(theirs, job.job_id)
    dead = Executor(uuid7(), "gone", 1, (QUEUE,))
    await runtime.store.enter_executor(dead)
    assert await runtime.store.claim_job(dead.executor_id, "default", job.job_id) is not None
    await Reconciler(runtime.store, runtime.registry, runtime.settings, dead=[dead.executor_id]).run()
    orphan = await read(runtime, job.job_id)
    assert (orphan.state, orphan.crash_count) == (JobState.PENDING, 0)
    async with on_duty(runtime):
        await theirs.complete(run.id)
        assert (await ended(runtime, job.job_id)).state is JobState.SUCCEEDED
    assert [one.id for one in await theirs.runs_of(job.job_id)] == [run.id]


async def test_an_outage_of_prefect_fails_nothing(
    runtime: OpenRuntime, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_jobs.tasks.asking.FIRST_PAUSE", timedelta(milliseconds=50))
    away = 6
    whole = PrefectClient.read_flow_runs

    async def sometimes(self: PrefectClient, **options: Any) -> Any:
        nonlocal away
        if away:
            away -= 1
            raise httpx.ConnectError("away")
        return await whole(self, **options)

    job = await submitted(await theirs.deploy())
    async with on_duty(runtime):
        await followed(runtime, job.job_id)
        job_run = (await read(runtime, job.job_id)).flow_run_id
        assert job_run is not None
        monkeypatch.setattr(PrefectClient, "read_flow_runs", sometimes)
        await theirs.complete(job_run)
        assert (await ended(runtime, job.job_id)).state is JobState.SUCCEEDED
    assert away == 0


async def test_five_hundred_runs_are_followed_without_a_connection_or_a_thread_each(
    runtime: OpenRuntime, theirs: Theirs, owner: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await theirs.deploy()
    monkeypatch.setattr(run_watching, "POLL", timedelta(seconds=1))
    many = 500
    with job_tenant_scope("default"):
        jobs = await register_jobs(
            NAME, [{"deployment": deployment, "parameters": {"n": n}} for n in range(many)]
        )
    # Runs that another shift has begun: what is measured is the waiting.
    found = await theirs.client.read_deployment_by_name(deployment)
    run = await theirs.client.create_flow_run_from_deployment(found.id)
    owner.execute("UPDATE job_history SET flow_run_id = %s", [run.id])
    asked = 0
    whole = PrefectClient.request

    async def counted(self: PrefectClient, *args: Any, **options: Any) -> Any:
        nonlocal asked
        asked += 1
        return await whole(self, *args, **options)

    monkeypatch.setattr(PrefectClient, "request", counted)
    threads = threading.active_count()
    async with on_duty(runtime):
        waiting = "SELECT count(*) FROM job_history WHERE state = 'RUNNING'"
        await eventually(lambda: owner.execute(waiting).fetchone()[0] == many, LONG)  # type: ignore[index]
        await eventually(lambda: asked >= 3, LONG)
        before = asked
        connections = owner.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
        await eventually(lambda: asked >= before + 5, LONG)
        assert connections is not None
        # Others use this database too, such as an API that tests share: it is the kind of growth that counts.
        assert connections[0] < many / 10
        assert threading.active_count() < threads + many / 10
        await theirs.complete(run.id)
        done = "SELECT count(*) FROM job_history WHERE state = 'SUCCEEDED'"
        await eventually(lambda: owner.execute(done).fetchone()[0] == many, LONG)  # type: ignore[index]
    assert len(jobs) == many
