"""Failures that happened outside are kept as FAILED jobs: each once, whoever finds it and however often."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from durable_jobs.errors import MissingTenant
from durable_jobs.flow_runs.store import FailureStore, NewFailure
from durable_jobs.jobs import Job
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Decision
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe

TYPE = "PREFECT_FLOW_RUN"


def failure(
    run: UUID | None = None, attempt: int = 1, at: timedelta = timedelta(0), **changes: object
) -> NewFailure:
    run = run or uuid4()
    key = f"flow-run:{run}:{attempt}"
    return NewFailure(
        new_job({"n": 1}, idempotency_key=key, **changes),
        run,
        "FlowRunFailed: Failed: no",
        datetime.now(UTC) + at,
    )


async def keep(store: AnyStore, *failures: NewFailure, tenant: str = "acme") -> list[tuple[UUID, bool]]:
    with job_tenant_scope(tenant):
        return [tuple(kept) for kept in await store.register_failed(failures, by="me")]


async def the_job(store: AnyStore, job_id: UUID) -> Job:
    with job_tenant_scope("acme"):
        return await store.get(job_id)


async def test_both_stores_keep_failures(store: AnyStore) -> None:
    assert isinstance(store, FailureStore)


async def test_a_failure_becomes_a_dead_letter_with_its_event_and_takes_no_room(
    store: AnyStore, probe: Probe
) -> None:
    wanted = failure(max_retries=5, submitted_by="collector", timeout=timedelta(days=2), max_pending=1)
    [(job_id, created)] = await keep(store, wanted)
    assert (job_id, created) == (wanted.job.job_id, True)
    job = await the_job(store, job_id)
    assert (job.state, job.failed_reason, job.retryable) == (
        JobState.FAILED,
        "FlowRunFailed: Failed: no",
        True,
    )
    assert (job.flow_run_id, job.root_job_id, job.max_retries) == (wanted.flow_run_id, job_id, 5)
    assert (job.payload, job.submitted_by, job.idempotency_key) == (
        {"n": 1},
        "collector",
        wanted.job.idempotency_key,
    )
    assert job.completed_at is not None
    [event] = probe.events()
    assert (event["event"], event["job_id"], event["severity"]) == ("jobs.job.failed", job_id, "WARNING")
    assert (event["payload"]["by"], event["payload"]["state"]) == ("me", "FAILED")
    assert probe.counted(QUEUE) == 0
    assert [letter.job_id for letter in await store.find_failed("acme")] == [job_id]


async def test_whoever_finds_a_failure_again_gets_its_job(store: AnyStore, probe: Probe) -> None:
    runs = [uuid4() for _ in range(5)]
    answers = await asyncio.gather(*(keep(store, *(failure(run) for run in runs)) for _ in range(8)))
    assert sum(created for answer in answers for _, created in answer) == 5
    assert len({tuple(job_id for job_id, _ in answer) for answer in answers}) == 1
    assert len(probe.jobs()) == len(probe.events()) == 5


async def test_finders_who_saw_different_attempts_make_one_job(store: AnyStore, probe: Probe) -> None:
    run = uuid4()
    answers = await asyncio.gather(*(keep(store, failure(run, attempt)) for attempt in range(6)))
    assert len({answer[0][0] for answer in answers}) == len(probe.jobs()) == 1


@pytest.mark.parametrize("by_retry", [False, True])
async def test_a_later_failure_is_a_new_one_when_the_earlier_was_settled(
    store: AnyStore, by_retry: bool
) -> None:
    run = uuid4()
    [(first, _)] = await keep(store, failure(run, 1))
    with job_tenant_scope("acme"):
        if by_retry:
            child = await store.retry(first, max_pending=None)
            claimed = await store.claim_job(await enter(store), "acme", child.job_id)
            assert claimed is not None
            assert await keep(store, failure(run, 2)) == [(first, False)]
            await store.finish([succeeded(claimed)])
        else:
            await store.cancel(first)
    assert await keep(store, failure(run, 1, timedelta(hours=1))) == [(first, False)]
    # Found late, but it happened while the chain was at it.
    assert await keep(store, failure(run, 2, -timedelta(hours=1))) == [(first, False)]
    [(second, created)] = await keep(store, failure(run, 2, timedelta(hours=1)))
    assert created
    assert second != first


async def test_a_chain_that_was_given_up_keeps_the_later_failures_too(store: AnyStore) -> None:
    run = uuid4()
    [(first, _)] = await keep(store, failure(run, 1, max_retries=0))
    await store.abandon_failed("acme")
    assert await keep(store, failure(run, 2)) == [(first, False)]


async def test_tenants_keep_their_own(store: AnyStore) -> None:
    wanted = failure()
    [(mine, _)] = await keep(store, wanted)
    [(theirs, created)] = await keep(
        store, wanted._replace(job=wanted.job._replace(job_id=uuid4())), tenant="other"
    )
    assert created
    assert mine != theirs
    with pytest.raises(MissingTenant):
        await store.register_failed([wanted])


async def test_many_at_once_have_one_event(store: AnyStore, probe: Probe) -> None:
    await keep(store, *(failure() for _ in range(100)))
    assert len(probe.jobs()) == 100
    [event] = probe.events()
    assert event["payload"]["jobs"] == 100


async def test_what_is_not_retryable_is_no_dead_letter(store: AnyStore) -> None:
    await keep(store, failure(retryable=False))
    assert await store.find_failed("acme") == []


async def test_a_running_job_names_the_run_that_it_follows_and_keeps_it(store: AnyStore) -> None:
    executor, run = await enter(store), uuid4()
    with job_tenant_scope("acme"):
        [registered] = await store.register_idempotent([new_job()])
        await store.link_flow_run(registered.job.job_id, run)
        assert (await store.get(registered.job.job_id)).flow_run_id is None
        claimed = await store.claim_job(executor, "acme", registered.job.job_id)
        assert claimed is not None
        await store.link_flow_run(claimed.job_id, run)
        await store.finish([failed(claimed)])
        await store.link_flow_run(claimed.job_id, uuid4())
    assert (await the_job(store, claimed.job_id)).flow_run_id == run


async def test_positions_are_kept_and_never_go_back(store: AnyStore) -> None:
    now = datetime.now(UTC)
    assert await store.positions(["a"]) == {}
    await store.keep_positions({"a": now, "b": now})
    await store.keep_positions({"a": now - timedelta(hours=1), "b": now + timedelta(hours=1)})
    assert await store.positions(["a", "b", "c"]) == {"a": now, "b": now + timedelta(hours=1)}


async def test_an_orphan_that_is_not_charged_is_no_suspect(store: AnyStore, probe: Probe) -> None:
    for _ in range(3):
        executor = await enter(store)
        if not probe.jobs():
            with job_tenant_scope("acme"):
                await store.register_idempotent([new_job()])
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        settled = await store.settle_orphans(
            "acme", [executor], lambda _: Decision(replay=True, charged=False), max_crashes=1
        )
        assert settled == {claimed.job_id: JobState.PENDING}
    assert [job["crash_count"] for job in probe.jobs()] == [0]


async def test_what_prefect_may_know_better_is_found_newest_first(store: AnyStore) -> None:
    began = datetime.now(UTC) - timedelta(minutes=1)
    kept = [(await keep(store, failure(job_type=TYPE)))[0][0] for _ in range(3)]
    await keep(store, failure(job_type=TYPE, retryable=False), failure())
    with job_tenant_scope("acme"):
        await store.cancel(kept[0])
        await store.resubmit(kept[1], max_pending=None)
    found = await store.jobs_of_runs(cancelled_since=began)
    assert [(job.job_id, job.state) for job in found] == [
        (kept[0], JobState.CANCELLED),
        (kept[2], JobState.FAILED),
    ]
    assert all(job.tenant_id == "acme" and job.flow_run_id for job in found)
    assert [
        job.job_id for job in await store.jobs_of_runs(cancelled_since=datetime.now(UTC) + timedelta(hours=1))
    ] == [kept[2]]
    assert len(await store.jobs_of_runs(cancelled_since=began, limit=1)) == 1
