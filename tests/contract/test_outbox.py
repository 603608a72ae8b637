"""Events on their way: taken, looked for, published, lost and taken again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from durable_jobs.outbox.store import EventOutbox, Posting
from durable_jobs.stores.protocols import NewEvent
from tests.conftest import AnyStore
from tests.contract.test_failed_jobs import failed_job
from tests.support.probes import Probe

NOTHING = timedelta(0)


async def record(store: AnyStore, *names: str, tenant: str | None = None) -> None:
    for name in names:
        await store.record_events([NewEvent(name, "INFO", {"n": 1}, tenant)])


async def test_both_stores_have_an_outbox(store: AnyStore) -> None:
    assert isinstance(store, EventOutbox)


async def test_events_of_tenants_and_of_the_system_are_taken_once_by_turns(store: AnyStore) -> None:
    await record(store, "a1", "a2", "a3", tenant="acme")
    await record(store, "b1", tenant="bolt")
    await record(store, "s1")
    first = await store.take_events(3)
    assert {event.event for event in first} == {"a1", "b1", "s1"}
    assert [event.event for event in await store.take_events(10)] == ["a2", "a3"]
    assert await store.take_events(10) == []
    assert all(event.posted_at is not None for event in first)


async def test_many_tenants_all_have_their_turn(store: AnyStore) -> None:
    tenants = [f"t{n:02}" for n in range(12)]
    for tenant in tenants:
        await record(store, "a", "b", tenant=tenant)
    assert await store.tenants("unposted") == tenants
    taken = [event.tenant_id for _ in range(8) for event in await store.take_events(4)]
    assert sorted(map(str, taken)) == sorted(2 * tenants)
    assert await store.tenants("unposted") == []
    assert await store.tenants("unpublished") == tenants


async def test_what_is_seen_in_prefect_is_published_and_gone(store: AnyStore, probe: Probe) -> None:
    await record(store, "a1", "a2", tenant="acme")
    taken = await store.take_events(10)
    assert await store.awaited_events(settled=timedelta(hours=1), limit=10) == []
    awaited = await store.awaited_events(settled=NOTHING, limit=10)
    assert {a.event_id for a in awaited} == {e.event_id for e in taken}
    await store.settle_events([taken[0].event_id], [])
    assert [row["published_at"] is not None for row in probe.events()] == [True, False]
    backlog = await store.event_backlog()
    assert (backlog.waiting, backlog.posted) == (0, 1)
    assert backlog.oldest_at == taken[1].occurred_at


async def test_what_prefect_lost_is_taken_again_once(store: AnyStore) -> None:
    await record(store, "a1", tenant="acme")
    [taken] = await store.take_events(10)
    await store.settle_events([], [Posting(taken.event_id, taken.posted_at)])
    assert (await store.event_backlog()).waiting == 1
    [again] = await store.take_events(10, now=datetime.now(UTC) + timedelta(seconds=1))
    # A second judge who looked before that posting has nothing to say about it.
    await store.settle_events([], [Posting(taken.event_id, taken.posted_at)])
    assert await store.take_events(10) == []
    await store.settle_events([again.event_id], [Posting(again.event_id, again.posted_at)])
    assert await store.event_backlog() == (0, 0, None)


async def test_an_event_of_a_job_tells_its_job(store: AnyStore) -> None:
    job_id = await failed_job(store)
    [event] = await store.take_events(10)
    assert (event.event, event.job_id, event.severity) == ("jobs.job.failed", job_id, "WARNING")
    assert (event.tenant_id, '"WORK"' in event.payload) == ("acme", True)
