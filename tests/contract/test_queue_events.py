"""Queues that are full, slow or held back are told of: on change, and never thousands of times."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from durable_jobs.errors import QueueFull
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.jobs import QUEUE, enter, new_job
from tests.support.probes import PgProbe, Probe
from tests.support.stores import open_store

AFTER = timedelta(minutes=10)


@pytest.fixture
def rows(owner_connection: psycopg.Connection) -> PgProbe:
    return PgProbe(owner_connection)


def told(probe: Probe, event: str) -> list[dict[str, Any]]:
    return [e["payload"] for e in probe.events() if e["event"] == event]


async def refused(store: AnyStore, tenant: str = "acme", **changes: Any) -> None:
    with job_tenant_scope(tenant), pytest.raises(QueueFull):
        await store.register_idempotent([new_job(max_pending=2, **changes)])


async def fill(store: AnyStore) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job(max_pending=2) for _ in range(2)])


async def test_a_full_queue_is_told_once_a_minute_whoever_is_refused(store: AnyStore, probe: Probe) -> None:
    await fill(store)
    assert told(probe, "jobs.queue.full") == []
    for n in range(5):
        await refused(store)
        await refused(store, "other", idempotency_key=f"k{n}")
    await asyncio.gather(*(refused(store) for _ in range(50)))
    await eventually(lambda: told(probe, "jobs.queue.full"))
    assert told(probe, "jobs.queue.full") == [{"queue": QUEUE, "maxPending": 2, "pending": 2}]
    [event] = [e for e in probe.events() if e["event"] == "jobs.queue.full"]
    assert (event["severity"], event["tenant_id"], event["job_id"]) == ("WARNING", None, None)


async def test_other_processes_do_not_say_it_again_before_a_minute_is_over(
    pg_store: PgJobsStore, database_url: str, rows: PgProbe, owner_connection: psycopg.Connection
) -> None:
    await fill(pg_store)
    for _ in range(3):
        async with open_store(database_url) as another:
            await refused(another)
    # A store that closes has said what it had to say.
    assert len(told(rows, "jobs.queue.full")) == 1
    owner_connection.execute("UPDATE health_states SET said_at = said_at - interval '61 s'")
    async with open_store(database_url) as another:
        await refused(another)
    assert len(told(rows, "jobs.queue.full")) == 2


async def test_a_refusal_does_not_wait_for_the_telling(
    pg_store: PgJobsStore, worker_urls: Urls, rows: PgProbe
) -> None:
    await fill(pg_store)
    with psycopg.connect(worker_urls.admin) as locking:
        locking.execute("LOCK health_states IN ACCESS EXCLUSIVE MODE")
        await asyncio.wait_for(refused(pg_store), 30)
        assert told(rows, "jobs.queue.full") == []
    await eventually(lambda: told(rows, "jobs.queue.full"))


async def test_a_slow_queue_is_told_once_a_spell(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job() for _ in range(3)])
        later = datetime.now(UTC) + timedelta(days=1)
        await store.register_idempotent([new_job(queue="planned", run_at=later)])
    assert await store.tell_stalled(after=AFTER) == []
    slow = datetime.now(UTC) + timedelta(minutes=11)
    for _ in range(3):
        [found] = await store.tell_stalled(after=AFTER, now=slow)
        assert (found.queue, found.pending) == (QUEUE, 3)
        assert found.waited > AFTER
    [payload] = told(probe, "jobs.queue.stalled")
    assert payload == {"queue": QUEUE, "pending": 3, "oldestWaitsSeconds": payload["oldestWaitsSeconds"]}
    assert 600 < payload["oldestWaitsSeconds"] <= 700
    # It catches up, and is slow again: that is the next spell.
    assert await store.tell_stalled(after=AFTER) == []
    assert len(await store.tell_stalled(after=AFTER, now=slow)) == 1
    assert len(told(probe, "jobs.queue.stalled")) == 2


@pytest.mark.parametrize(("kind", "name"), [("queue", QUEUE), ("type", "WORK")])
async def test_what_is_held_back_is_not_slow(store: AnyStore, probe: Probe, kind: str, name: str) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job()])
    await store.pause(kind, name)
    slow = datetime.now(UTC) + timedelta(minutes=11)
    assert await store.tell_stalled(after=AFTER, now=slow) == []
    await store.resume(kind, name)
    assert len(await store.tell_stalled(after=AFTER, now=slow)) == 1


async def test_what_runs_is_not_slow(store: AnyStore) -> None:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job()])
    await store.claim(executor, QUEUE, 1)
    assert await store.tell_stalled(after=AFTER, now=datetime.now(UTC) + timedelta(hours=1)) == []


async def test_holding_back_and_letting_go_are_told_when_they_change_something(
    store: AnyStore, probe: Probe
) -> None:
    for _ in range(2):
        await store.pause("queue", QUEUE, by="ann")
    for _ in range(2):
        await store.resume("queue", QUEUE, by="bob")
    await store.pause("type", "WORK")
    assert [(e["event"], e["severity"], e["tenant_id"]) for e in probe.events()] == [
        ("jobs.queue.paused", "INFO", None),
        ("jobs.queue.resumed", "INFO", None),
        ("jobs.queue.paused", "INFO", None),
    ]
    assert told(probe, "jobs.queue.paused") == [
        {"kind": "queue", "queue": QUEUE, "by": "ann"},
        {"kind": "type", "jobType": "WORK", "by": None},
    ]
    assert told(probe, "jobs.queue.resumed") == [{"kind": "queue", "queue": QUEUE, "by": "bob"}]
