"""Executors, their leases, figures, events: what belongs to no tenant."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from durable_jobs.states import JobState
from durable_jobs.stores.protocols import JobFilter, NewEvent, QueueUse
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.eventually import eventually
from tests.support.jobs import QUEUE, enter, failed, new_job
from tests.support.probes import Probe

MINUTE = timedelta(minutes=1)


async def test_executors_come_beat_and_go(store: AnyStore) -> None:
    first = await enter(store, "a", "b")
    second = await enter(store, flow_run_id=uuid4(), in_crew=False)
    views = await store.executors()
    assert [view.executor.executor_id for view in views] == [second, first]
    assert views[1].executor.queues == ("a", "b")
    assert not views[0].executor.in_crew
    assert views[0].silence < MINUTE
    before = views[1].last_seen_at
    assert await store.beat(first)
    assert {v.executor.executor_id: v.last_seen_at for v in await store.executors()}[first] > before
    await store.leave_executor(first)
    assert not await store.beat(first)
    assert len(await store.executors()) == 1


async def test_a_heart_beats_from_a_thread(store: AnyStore) -> None:
    executor = await enter(store)
    [view] = await store.executors()
    heart = store.heart(executor)
    assert await asyncio.to_thread(heart.beat)
    assert (await store.executors())[0].last_seen_at > view.last_seen_at
    await store.leave_executor(executor)
    assert not await asyncio.to_thread(heart.beat)
    heart.close()


async def test_silence_is_measured_by_the_stores_clock(store: AnyStore) -> None:
    executor = await enter(store)
    assert await store.silent_executors(stale_after=MINUTE) == []
    await eventually(lambda: store.silent_executors(stale_after=timedelta(milliseconds=1)))
    await store.beat(executor)
    assert await store.silent_executors(stale_after=MINUTE) == []


async def test_idle_and_draining_are_told(store: AnyStore) -> None:
    executor = await enter(store)
    await store.set_idle(executor, True)
    [view] = await store.executors()
    assert (view.idle, view.draining) == (True, False)
    await store.set_draining(executor)
    [view] = await store.executors()
    assert (view.idle, view.draining) == (False, True)


async def test_a_sleeping_executor_is_woken_by_work_and_told_of_a_cancel(
    store: AnyStore, request: pytest.FixtureRequest
) -> None:
    if "pgbouncer" in request.node.name:
        pytest.skip("LISTEN needs a session of its own; behind a transaction pooler polling is enough")
    executor = await enter(store)
    queues: list[str] = []
    cancels: list[str] = []
    listening = asyncio.create_task(store.listen(queues.append, cancels.append))
    await eventually(lambda: queues == [""])
    await store.set_idle(executor, True)
    job = new_job()
    with job_tenant_scope("acme"):
        await store.register_idempotent([job])
        await eventually(lambda: queues == ["", QUEUE])
        await store.claim(executor, QUEUE, 1)
        await store.cancel(job.job_id)
        await eventually(lambda: cancels == [str(executor)])
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_lone_executor_holds_the_whole_concurrency(store: AnyStore) -> None:
    executor = await enter(store, "a", "b")
    uses = [QueueUse("a", 10, 0), QueueUse("b", 3, 0)]
    assert await store.lease_queues(executor, uses, stale_after=MINUTE) == {"a": 10, "b": 3}
    [view] = await store.executors()
    assert view.held == {"a": 10, "b": 3}


async def test_a_newcomer_gets_its_share_once_the_others_have_given_it_up(store: AnyStore) -> None:
    old = await enter(store)
    assert await store.lease_queues(old, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 5}
    new = await enter(store)
    assert await store.lease_queues(new, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 0}
    # Four are in flight, so four stay held.
    assert await store.lease_queues(old, [QueueUse(QUEUE, 5, 4)], stale_after=MINUTE) == {QUEUE: 4}
    assert await store.lease_queues(new, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 1}
    assert await store.lease_queues(old, [QueueUse(QUEUE, 5, 1)], stale_after=MINUTE) == {QUEUE: 2}
    assert await store.lease_queues(new, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 3}
    await store.set_draining(old)
    assert await store.lease_queues(old, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 0}
    assert await store.lease_queues(new, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 5}


async def test_a_lease_stays_with_the_dead_until_they_are_forgotten(store: AnyStore) -> None:
    dead = await enter(store)
    await store.lease_queues(dead, [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE)
    await eventually(lambda: store.silent_executors(stale_after=timedelta(milliseconds=1)))
    new = await enter(store)
    stale = timedelta(milliseconds=1)
    assert await store.lease_queues(new, [QueueUse(QUEUE, 5, 0)], stale_after=stale) == {QUEUE: 0}
    await store.leave_executor(dead)
    assert await store.lease_queues(new, [QueueUse(QUEUE, 5, 0)], stale_after=stale) == {QUEUE: 5}


async def test_who_is_not_known_holds_nothing(store: AnyStore) -> None:
    assert await store.lease_queues(uuid4(), [QueueUse(QUEUE, 5, 0)], stale_after=MINUTE) == {QUEUE: 0}


async def test_tenants_are_named_by_what_they_have(store: AnyStore) -> None:
    executor = await enter(store)
    for tenant in ("pending", "running", "failed", "final"):
        with job_tenant_scope(tenant):
            await store.register_idempotent([new_job() for _ in range(2)])
    with job_tenant_scope("elsewhere"):
        await store.register_idempotent([new_job(queue="other")])
    for tenant in ("running", "failed", "final"):
        for row in await _waiting(store, tenant):
            claimed = await store.claim_job(executor, tenant, row)
            if tenant != "running" and claimed is not None:
                await store.finish([failed(claimed, retryable=tenant == "failed")])
    assert await store.tenants("pending", queue=QUEUE) == ["pending"]
    assert await store.tenants("pending", queue="other") == ["elsewhere"]
    assert await store.tenants("running") == ["running"]
    assert await store.tenants("failed") == ["failed"]
    assert await store.tenants("unpublished") == ["failed", "final"]
    assert await store.tenants("any") == ["elsewhere", "failed", "final", "pending", "running"]


async def _waiting(store: AnyStore, tenant: str) -> list[UUID]:
    with job_tenant_scope(tenant):
        return [job.job_id for job in (await store.list_jobs(JobFilter())).jobs]


async def test_figures_cover_all_tenants_and_only_what_lives_or_failed(store: AnyStore) -> None:
    executor = await enter(store)
    for tenant in ("a", "b"):
        with job_tenant_scope(tenant):
            await store.register_idempotent([new_job() for _ in range(3)])
    one, two, three = (await store.claim(executor, QUEUE, 3)).jobs
    await store.finish([failed(one), failed(two, retryable=False)])
    figures = {(c.queue, c.job_type, c.state): c.jobs for c in await store.counts()}
    assert figures == {
        (QUEUE, "WORK", JobState.PENDING): 3,
        (QUEUE, "WORK", JobState.RUNNING): 1,
        (QUEUE, "WORK", JobState.FAILED): 1,
    }
    assert all(c.oldest_run_at is not None for c in await store.counts())
    assert three.job_id


async def test_events_are_put_into_the_outbox(store: AnyStore, probe: Probe) -> None:
    job_id = uuid4()
    await store.record_events(
        [
            NewEvent("jobs.queue.stalled", "WARNING", {"queue": "a", "age": float("inf"), "text": "x\x00"}),
            NewEvent("jobs.job.cancelled", "INFO", {"by": "ann"}, "acme", job_id),
        ]
    )
    told = {event["event"]: event for event in probe.events()}
    assert told["jobs.queue.stalled"]["tenant_id"] is None
    assert told["jobs.queue.stalled"]["payload"] == {
        "queue": "a",
        "age": None,
        "text": "x\N{REPLACEMENT CHARACTER}",
    }
    assert (told["jobs.job.cancelled"]["tenant_id"], told["jobs.job.cancelled"]["job_id"]) == ("acme", job_id)
    assert all(event["published_at"] is None for event in told.values())


@pytest.mark.parametrize("kind", ["queue", "type"])
async def test_pausing_is_told(store: AnyStore, kind: str) -> None:
    assert await store.paused() == []
    await store.pause(kind, "x")
    [paused] = await store.paused()
    assert (paused.kind, paused.name, paused.by) == (kind, "x", None)
    assert await store.resume(kind, "x")
    assert await store.paused() == []
