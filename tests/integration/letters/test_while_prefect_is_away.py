"""While Prefect's API is away nothing but the table of events grows: no memory, no task, and no job notices."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from datetime import timedelta

import psycopg
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from durable_jobs.outbox.message import Message
from durable_jobs.outbox.publishing import AT_ONCE, Published
from durable_jobs.outbox.store import EventOutbox, OutboxEvent
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tasks import publishing
from durable_jobs.tasks.beside import beside
from tests.contract.test_dead_letters import failed_jobs
from tests.support.eventually import eventually
from tests.support.probes import PgProbe

NOBODY = "http://127.0.0.1:9/api"
SHORT = timedelta(milliseconds=20)
EACH = 100
ROUNDS = 4

pytestmark = pytest.mark.timeout(300)


def held_in_memory() -> int:
    """Events that this process holds in any form."""
    return sum(isinstance(thing, OutboxEvent | Message) for thing in gc.get_objects())


async def test_evt1_jobs_fail_and_nothing_is_kept_but_in_the_table(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The pauses of a long outage, so that its passes are many and its time is short.
    monkeypatch.setattr(publishing, "LONGEST_PAUSE", SHORT)
    publish, in_vain = publishing.publish_events, []

    async def counted(outbox: EventOutbox) -> Published:
        done = await publish(outbox)
        if done.away:
            in_vain.append(done)
        return done

    monkeypatch.setattr(publishing, "publish_events", counted)
    held, tasks = [], []
    with temporary_settings({PREFECT_API_URL: NOBODY}):
        async with beside(publishing.keep_publishing(pg_store, pause=SHORT), "publishing"):
            for _ in range(ROUNDS):
                await failed_jobs(pg_store, EACH)

                def tried(before: int = len(in_vain)) -> bool:
                    held.append(held_in_memory())
                    return len(in_vain) >= before + 2

                await eventually(tried, timedelta(seconds=120))
                tasks.append(len(asyncio.all_tasks()))
    assert max(held) <= 2 * AT_ONCE, "an event and its message, for one request"
    assert max(tasks) <= tasks[0] + 2
    backlog = await pg_store.event_backlog()
    assert backlog.waiting + backlog.posted == ROUNDS * EACH
    rows = PgProbe(owner_connection)
    assert Counter(row["state"] for row in rows.jobs()) == {"FAILED": ROUNDS * EACH}
    told = Counter(e["job_id"] for e in rows.events() if e["event"] == "jobs.job.failed")
    assert set(told.values()) == {1}
    assert len(told) == ROUNDS * EACH
