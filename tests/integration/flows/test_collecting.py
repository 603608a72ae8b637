"""Which flow runs are kept as dead letters, once each, and what happens when people act in Prefect meanwhile."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from prefect import task
from prefect.blocks.system import Secret
from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
from prefect.states import AwaitingRetry, Cancelled, Completed, Crashed, Failed, Running, Scheduled
from psycopg.rows import dict_row

from durable_jobs import JobState
from durable_jobs.tasks import run_limits
from durable_jobs.tasks.collected_shown import collected_markdown
from durable_jobs.tasks.collecting import Collected, end_hopeless_runs, find_watched, keep_failed_runs
from durable_jobs.tasks.run_agreement import SUCCEEDED_AGAIN, agree_with_prefect
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.integration.flows.following import LONG, ended, on_duty, read, run_of, submitted
from tests.integration.flows.their_deployments import Theirs
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(300)
HOUR = timedelta(hours=1)
WAITING = ("Scheduled", "Late")


@task
def a_step() -> None:
    """Stand for another flow's run inside its parent."""


async def collect(
    runtime: OpenRuntime, *deployments: str, tag: str = "durable", limit: int = 1000, **changes: Any
) -> Collected:
    """Do what the flow does, seen from inside."""
    done = Collected(await find_watched.fn(tag, deployments))
    await end_hopeless_runs.fn(runtime, done, "default", changes.get("never_started_after", HOUR))
    await keep_failed_runs.fn(
        runtime, done, "default", window=timedelta(days=1), overlap=timedelta(minutes=15), limit=limit
    )
    return done


@pytest.fixture
def tag(request: pytest.FixtureRequest) -> str:
    """A tag that only this test's deployments have."""
    return f"durable-{abs(hash(request.node.name))}"


def rows(owner: psycopg.Connection) -> list[dict[str, Any]]:
    with owner.cursor(row_factory=dict_row) as cursor:
        return cursor.execute("SELECT * FROM job_history ORDER BY created_at, job_id").fetchall()


async def retried(runtime: OpenRuntime, job_id: Any) -> Any:
    with job_tenant_scope("default"):
        return (await runtime.store.retry(job_id, max_pending=None)).job_id


async def test_passes_that_run_at_once_and_again_keep_each_failure_once(
    runtime: OpenRuntime, theirs: Theirs, tag: str, owner: psycopg.Connection
) -> None:
    deployment = await theirs.deploy(tag, f"{tag}:max-retries=7", f"{tag}:backoff=PT1M")
    runs = [await theirs.start(deployment, parameters={"n": n}, tags=["their-own"]) for n in range(3)]
    for run in runs:
        await theirs.fail(run.id)
    passes = await asyncio.gather(*(collect(runtime, tag=tag) for _ in range(3)))
    assert sum(len(done.kept) for done in passes) == 3
    assert not (await collect(runtime, tag=tag)).kept
    jobs = rows(owner)
    assert {job["flow_run_id"] for job in jobs} == {run.id for run in runs}
    one = jobs[0]
    assert (one["state"], one["retryable"], one["max_retries"]) == ("FAILED", True, 7)
    assert one["payload"]["deployment"] == deployment
    assert one["payload"]["retry_backoff"] == "PT1M"
    assert one["payload"]["tags"] == sorted([tag, f"{tag}:backoff=PT1M", f"{tag}:max-retries=7", "their-own"])
    tagged = await theirs.client.read_flow_run(one["flow_run_id"])
    assert f"durable-job:{one['job_id']}" in tagged.tags


async def test_a_run_kept_by_a_pass_that_died_before_naming_the_job_at_it_is_named_by_the_next(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    run = await theirs.start(await theirs.deploy(tag))
    await theirs.fail(run.id)
    [(job_id, _)] = (await collect(runtime, tag=tag)).kept
    await theirs.client.update_flow_run(run.id, tags=["their-own"])
    assert not (await collect(runtime, tag=tag)).kept
    assert set((await theirs.client.read_flow_run(run.id)).tags) == {"their-own", f"durable-job:{job_id}"}


async def test_listed_deployments_are_watched_and_ours_never(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    listed, ours = await theirs.deploy(), await theirs.deploy(tag, "durable-jobs")
    for deployment in (listed, ours):
        await theirs.fail((await theirs.start(deployment)).id)
    done = await collect(runtime, listed, ours, "theirs/does-not-exist", tag=tag)
    assert [one.deployment for _, one in done.kept] == [listed]


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (Failed(message="no"), True),
        (Crashed(message="no"), True),
        (Cancelled(message="Runner is shutting down."), True),
        (Cancelled(message="Flow run was cancelled successfully."), False),
        (Cancelled(message="Deployment concurrency limit reached."), False),
        (Completed(), False),
        (AwaitingRetry(scheduled_time=datetime(2031, 1, 1, tzinfo=UTC)), False),
    ],
    ids=["failed", "crashed", "shutdown", "person", "limit", "completed", "awaiting-retry"],
)
async def test_what_counts_as_a_failure(
    runtime: OpenRuntime, theirs: Theirs, tag: str, state: Any, kept: bool
) -> None:
    run = await theirs.start(await theirs.deploy(tag))
    await theirs.run(run.id)
    await theirs.set(run.id, state)
    done = await collect(runtime, tag=tag)
    assert [one.run.flow_run_id for _, one in done.kept] == ([run.id] if kept else [])


async def test_what_a_job_started_is_no_root(runtime: OpenRuntime, theirs: Theirs, tag: str) -> None:
    job = await submitted(await theirs.deploy(tag))
    async with on_duty(runtime):
        await theirs.fail((await run_of(theirs, job.job_id)).id)
        await ended(runtime, job.job_id)
    assert not (await collect(runtime, tag=tag)).kept


async def test_a_run_that_another_flow_started_is_its_parents_to_deal_with(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    deployment = await theirs.deploy(tag)
    parent = await theirs.start(deployment)
    await theirs.run(parent.id)
    step = await theirs.client.create_task_run(task=a_step, flow_run_id=parent.id, dynamic_key="0")
    child = await theirs.start(deployment, parent_task_run_id=step.id)
    await theirs.fail(child.id)
    await theirs.set(parent.id, Failed(message="a part of it failed"))
    done = await collect(runtime, tag=tag)
    assert [one.run.flow_run_id for _, one in done.kept] == [parent.id]


async def test_a_dead_letter_whose_run_succeeds_when_a_person_runs_it_again_is_not_retried(
    runtime: OpenRuntime, theirs: Theirs, tag: str, owner: psycopg.Connection
) -> None:
    run = await theirs.start(await theirs.deploy(tag))
    await theirs.fail(run.id)
    [(job_id, _)] = (await collect(runtime, tag=tag)).kept
    await theirs.set(run.id, Scheduled(), Running())
    assert (await agree_with_prefect.fn(runtime)).succeeded_meanwhile == 0
    await theirs.set(run.id, Completed())
    assert (await agree_with_prefect.fn(runtime)).succeeded_meanwhile == 1
    assert (await read(runtime, job_id)).state is JobState.CANCELLED
    [by] = owner.execute(
        "SELECT payload->>'by' FROM job_events WHERE event = 'jobs.job.cancelled'"
    ).fetchone()
    assert by == SUCCEEDED_AGAIN
    # It fails when it is run for a third time: a new failure.
    await theirs.set(run.id, Scheduled(), Running(), Failed(message="no"))
    assert [one.run.flow_run_id for _, one in (await collect(runtime, tag=tag)).kept] == [run.id]


@pytest.mark.parametrize("succeeds", [True, False])
async def test_a_retry_waits_for_the_run_that_a_person_runs_again(
    runtime: OpenRuntime, theirs: Theirs, tag: str, succeeds: bool
) -> None:
    run = await theirs.start(await theirs.deploy(tag))
    await theirs.fail(run.id)
    [(job_id, _)] = (await collect(runtime, tag=tag)).kept
    await theirs.set(run.id, Scheduled(), Running())
    child = await retried(runtime, job_id)
    async with on_duty(runtime):

        async def is_running() -> bool:
            return (await read(runtime, child)).state is JobState.RUNNING

        await eventually(is_running, LONG)
        assert await theirs.runs_of(child) == []
        await theirs.set(run.id, Completed() if succeeds else Failed(message="no again"))
        if not succeeds:
            # The attempt in the UI is over: now the retry has a run of its own.
            await theirs.complete((await run_of(theirs, child)).id)
        job = await ended(runtime, child)
    assert (job.state, job.result["status"]) == (JobState.SUCCEEDED, "SKIPPED" if succeeds else "OK")
    assert len(await theirs.runs_of(child)) == (0 if succeeds else 1)
    assert not (await collect(runtime, tag=tag)).kept


async def test_a_run_that_nobody_starts_is_closed_and_kept(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    pool = f"pool-{tag}"
    await theirs.client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    deployment = await theirs.deploy(tag, work_pool_name=pool)
    long_ago = Scheduled(scheduled_time=datetime.now(UTC) - timedelta(hours=2))
    run = await theirs.start(deployment, state=long_ago)
    later = await theirs.start(deployment)
    await theirs.client.update_work_pool(pool, WorkPoolUpdate(is_paused=True))
    # Held back by a person: it waits, and has not failed.
    assert not (await collect(runtime, tag=tag)).kept
    await theirs.client.update_work_pool(pool, WorkPoolUpdate(is_paused=False))
    done = await collect(runtime, tag=tag)
    assert ([one.run.flow_run_id for _, one in done.kept], done.never_started) == ([run.id], 1)
    assert await theirs.state(run.id) == "Crashed"
    assert await theirs.state(later.id) in WAITING
    assert "never started: due at" in ((await read(runtime, done.kept[0][0])).failed_reason or "")
    assert not (await collect(runtime, tag=tag)).kept
    await theirs.client.delete_work_pool(pool)


async def test_the_late_run_of_a_job_is_waited_for(runtime: OpenRuntime, theirs: Theirs, tag: str) -> None:
    job = await submitted(await theirs.deploy(tag))
    async with on_duty(runtime):
        run = await run_of(theirs, job.job_id)
        done = await collect(runtime, tag=tag, never_started_after=timedelta(microseconds=1))
        assert (done.kept, done.never_started) == ([], 0)
        assert await theirs.state(run.id) in WAITING


async def test_a_hung_run_is_kept_and_cancelled_and_closed_when_its_runner_is_gone(
    runtime: OpenRuntime, theirs: Theirs, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = await theirs.deploy(tag, f"{tag}:timeout=0.01")
    run = await theirs.start(deployment)
    await theirs.run(run.id)
    job = await submitted(deployment)
    async with on_duty(runtime):
        own = await run_of(theirs, job.job_id)
        await theirs.run(own.id)
        done = await collect(runtime, tag=tag)
        # The run of a job is ended too, but its failure is the job's.
        assert ([one.run.flow_run_id for _, one in done.kept], done.hung) == ([run.id], 2)
        assert [await theirs.state(i) for i in (run.id, own.id)] == ["Cancelling"] * 2
        assert not (await collect(runtime, tag=tag)).kept
        monkeypatch.setattr(run_limits, "DOES_NOT_STOP_AFTER", timedelta(0))
        await collect(runtime, tag=tag)
        assert [await theirs.state(i) for i in (run.id, own.id)] == ["Crashed"] * 2
        failed = await ended(runtime, job.job_id)
    assert (failed.state, failed.retryable) == (JobState.FAILED, True)
    assert "timed out after" in (failed.failed_reason or "")


async def test_a_hung_run_that_its_runner_ends_has_failed_and_was_not_called_off(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    job = await submitted(await theirs.deploy(tag, f"{tag}:timeout=0.01"))
    async with on_duty(runtime):
        own = await run_of(theirs, job.job_id)
        await theirs.run(own.id)
        await collect(runtime, tag=tag)
        await theirs.set(own.id, Cancelled(message="Flow run was cancelled successfully."))
        failed = await ended(runtime, job.job_id)
    assert (failed.state, failed.retryable) == (JobState.FAILED, True)
    assert "timed out after PT0.01S" in (failed.failed_reason or "")


async def test_a_pass_keeps_about_its_limit_and_the_next_goes_on(
    runtime: OpenRuntime, theirs: Theirs, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_jobs.tasks.collecting.PAGE", 2)
    deployment = await theirs.deploy(tag)
    for _ in range(5):
        await theirs.fail((await theirs.start(deployment)).id)
    kept = [await collect(runtime, tag=tag, limit=2) for _ in range(3)]
    assert [(len(done.kept), done.complete) for done in kept] == [(2, False), (2, False), (1, True)]


async def test_a_deployment_tagged_later_begins_with_its_window(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    first, second = await theirs.deploy(tag), await theirs.deploy()
    for deployment in (first, second):
        await theirs.fail((await theirs.start(deployment)).id)
    assert len((await collect(runtime, tag=tag)).kept) == 1
    await runtime.store.keep_positions({"flow-runs default other": datetime.now(UTC) + HOUR})
    assert [one.deployment for _, one in (await collect(runtime, second, tag=tag)).kept] == [second]


async def test_what_cannot_be_stored_is_kept_without_its_parameters(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    small = runtime._replace(settings=runtime.settings.model_copy(update={"max_payload_bytes": 600}))
    run = await theirs.start(await theirs.deploy(tag), parameters={"word": "x" * 1000})
    await theirs.fail(run.id)
    [(job_id, _)] = (await collect(small, tag=tag)).kept
    job = await read(runtime, job_id)
    assert (job.retryable, job.payload["parameters"]) == (False, {})
    assert "cannot be stored" in (job.failed_reason or "")


async def test_blocks_and_secrets_pass_as_they_are_and_are_told_to_nobody(
    runtime: OpenRuntime, theirs: Theirs, tag: str, owner: psycopg.Connection
) -> None:
    block = Secret(value="kept by Prefect")
    document = await block.save(f"a-{abs(hash(tag))}", overwrite=True)
    schema = {"type": "object", "properties": {"login": {"title": "login"}, "word": {"type": "string"}}}
    given = {"login": {"$ref": {"block_document_id": str(document)}}, "word": "tr0ub4dor"}
    run = await theirs.start(await theirs.deploy(tag, schema=schema), parameters=given)
    await theirs.fail(run.id, "ValueError: tr0ub4dor is no word")
    done = await collect(runtime, tag=tag)
    child = await retried(runtime, done.kept[0][0])
    async with on_duty(runtime):
        again = await run_of(theirs, child)
        assert again.parameters == given == (await theirs.client.read_flow_run(run.id)).parameters
        await theirs.fail(again.id, "ValueError: tr0ub4dor is no word")
        await ended(runtime, child)
    [told] = owner.execute("SELECT string_agg(payload::text, ' ') FROM job_events").fetchone()
    assert "no word" in told
    assert "tr0ub4dor" not in told + collected_markdown(done) + str(rows(owner)[0]["failed_reason"])


async def test_a_policy_that_cannot_be_read_is_told_and_keeps_nothing_from_being_kept(
    runtime: OpenRuntime, theirs: Theirs, tag: str
) -> None:
    await theirs.fail((await theirs.start(await theirs.deploy(tag, f"{tag}:max-retires=5"))).id)
    done = await collect(runtime, tag=tag)
    assert len(done.kept) == 1
    assert "'max-retires' is not one of max-retries, backoff, timeout" in collected_markdown(done).replace(
        "\\", ""
    )
