"""The parts of a queue's concurrency that executors hold never add up to more than there is."""

from __future__ import annotations

import asyncio
import random
from datetime import timedelta

import psycopg

from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import QueueUse
from tests.support.jobs import QUEUE, enter

CONCURRENCY = 10
MINUTE = timedelta(minutes=1)
_HELD = "SELECT coalesce(sum(held), 0) FROM queue_leases"


async def test_executors_that_come_lease_and_go_share_exactly(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    most = 0

    async def executor(number: int) -> None:
        nonlocal most
        choice = random.Random(number)
        for _ in range(4):
            me = await enter(pg_store)
            held = 0
            for _ in range(8):
                use = QueueUse(QUEUE, CONCURRENCY, choice.randint(0, held))
                held = (await pg_store.lease_queues(me, [use], stale_after=MINUTE))[QUEUE]
                row = owner_connection.execute(_HELD).fetchone()
                most = max(most, row[0] if row else 0)
            if choice.random() < 0.5:
                await pg_store.set_draining(me)
                await pg_store.lease_queues(me, [QueueUse(QUEUE, CONCURRENCY, 0)], stale_after=MINUTE)
            await pg_store.leave_executor(me)

    await asyncio.gather(*(executor(number) for number in range(6)))
    assert CONCURRENCY * 0.8 <= most <= CONCURRENCY
    last = await enter(pg_store)
    uses = [QueueUse(QUEUE, CONCURRENCY, 0)]
    assert await pg_store.lease_queues(last, uses, stale_after=MINUTE) == {QUEUE: CONCURRENCY}
