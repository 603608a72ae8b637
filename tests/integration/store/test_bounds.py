"""A queue never holds more than it may, whoever submits, dies or dawdles; the book equals the table."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest

from durable_jobs.errors import QueueFull
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.within import within
from durable_jobs.tenants import job_tenant_scope
from tests.support.eventually import eventually
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import PgProbe
from tests.support.processes import kill, running, start

BOUND = 100
_WAITING = "SELECT count(*) FROM job_history WHERE state = 'PENDING'"


def waiting(connection: psycopg.Connection) -> int:
    row = connection.execute(_WAITING).fetchone()
    return row[0] if row else 0


@pytest.mark.timeout(300)
async def test_fifty_submitters_some_killed_some_slow_while_jobs_are_claimed(
    pg_store: PgJobsStore, database_url: str, owner_connection: psycopg.Connection
) -> None:
    executor = await enter(pg_store)
    most = claimed = 0
    module = "tests.integration.store.racing_submitter"
    with running([start(module, database_url, BOUND, 3) for _ in range(4)]) as processes:
        await eventually(lambda: waiting(owner_connection) >= BOUND * 0.9, timedelta(minutes=1))
        while claimed <= 100 or any(process.poll() is None for process in processes):
            jobs = (await pg_store.claim(executor, QUEUE, 7)).jobs
            claimed += len(jobs)
            await pg_store.finish([succeeded(job) for job in jobs])
            most = max(most, waiting(owner_connection))
            if claimed > 50 and len(processes) > 2:
                kill(processes.pop())
        for process in processes:
            process.wait(timeout=120)
        assert all(process.returncode == 0 for process in processes)
    assert claimed > 100
    assert BOUND / 2 < most <= BOUND
    # Transactions of killed processes end when the server notices.
    await eventually(lambda: PgProbe(owner_connection).counted(QUEUE) == waiting(owner_connection))
    with job_tenant_scope("acme"):
        await pg_store.lease_queues(executor, [], stale_after=timedelta(minutes=1))
        free = BOUND - waiting(owner_connection)
        for _ in range(free):
            await pg_store.register_idempotent([new_job(max_pending=BOUND)])
        with pytest.raises(QueueFull):
            await pg_store.register_idempotent([new_job(max_pending=BOUND)])
    assert waiting(owner_connection) == PgProbe(owner_connection).counted(QUEUE) == BOUND


async def test_the_last_room_is_given_once(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job(max_pending=BOUND) for _ in range(95)])
        answers = await asyncio.gather(
            *(pg_store.register_idempotent([new_job(max_pending=BOUND)]) for _ in range(50)),
            return_exceptions=True,
        )
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(answer, QueueFull) for answer in refused)
    assert len(refused) >= 45
    assert waiting(owner_connection) == PgProbe(owner_connection).counted(QUEUE) == 145 - len(refused)


async def test_a_transaction_held_open_holds_its_own_room_only(
    pg_store: PgJobsStore, database_url: str, owner_connection: psycopg.Connection
) -> None:
    with job_tenant_scope("acme"):
        async with await psycopg.AsyncConnection.connect(database_url) as mine:
            await within(mine).register_idempotent([new_job(max_pending=BOUND)])
            # All other counters are free; the one that is locked is not waited for.
            answers = [
                await pg_store.register_idempotent([new_job(max_pending=BOUND)]) for _ in range(BOUND - 10)
            ]
            assert len(answers) == BOUND - 10
            assert PgProbe(owner_connection).counted(QUEUE) == BOUND - 10
            await mine.rollback()
        for _ in range(10):
            await pg_store.register_idempotent([new_job(max_pending=BOUND)])
        with pytest.raises(QueueFull):
            await pg_store.register_idempotent([new_job(max_pending=BOUND)])
    assert waiting(owner_connection) == PgProbe(owner_connection).counted(QUEUE) == BOUND


async def test_claims_do_not_wait_for_a_held_counter_and_nothing_is_lost(
    pg_store: PgJobsStore, database_url: str, owner_connection: psycopg.Connection
) -> None:
    executor = await enter(pg_store)
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job(max_pending=32) for _ in range(24)])
        async with await psycopg.AsyncConnection.connect(database_url) as mine:
            # Enough to lock every counter that still has room, and so some that have waiting jobs.
            await within(mine).register_idempotent([new_job(max_pending=32) for _ in range(8)])
            jobs = (await asyncio.wait_for(pg_store.claim(executor, QUEUE, 24), 30)).jobs
            assert len(jobs) == 24
            await mine.commit()
        assert PgProbe(owner_connection).counted(QUEUE) == waiting(owner_connection) == 8
        await pg_store.register_idempotent([new_job(max_pending=32) for _ in range(24)])
    assert PgProbe(owner_connection).counted(QUEUE) == waiting(owner_connection) == 32


async def test_a_small_bound_and_a_changed_bound_hold(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    with job_tenant_scope("acme"):
        for bound in (1, 3, 16, 17, 40, 5):
            while waiting(owner_connection) < bound:
                await pg_store.register_idempotent([new_job(max_pending=bound)])
            with pytest.raises(QueueFull, match=f"may hold {bound} waiting"):
                await pg_store.register_idempotent([new_job(max_pending=bound)])
    assert waiting(owner_connection) == PgProbe(owner_connection).counted(QUEUE) == 40


async def test_counters_stay_exact_while_retries_claims_and_cancels_race(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    executor = await enter(pg_store)
    bound = 40
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job(max_pending=bound) for _ in range(bound)])
        jobs = (await pg_store.claim(executor, QUEUE, bound)).jobs
        await pg_store.finish([failed(job) for job in jobs])
        children = await asyncio.gather(
            *(pg_store.retry(job.job_id, max_pending=bound) for job in jobs),
            *(pg_store.register_idempotent([new_job(max_pending=bound)]) for _ in range(bound)),
            return_exceptions=True,
        )
        assert {type(c) for c in children if isinstance(c, BaseException)} <= {QueueFull}
        assert waiting(owner_connection) == PgProbe(owner_connection).counted(QUEUE) <= bound
        ids = [row["job_id"] for row in PgProbe(owner_connection).jobs() if row["state"] == "PENDING"]
        await asyncio.gather(
            *(pg_store.cancel(job_id) for job_id in ids[::2]),
            *(pg_store.claim(executor, QUEUE, 5) for _ in range(4)),
            return_exceptions=True,
        )
    assert waiting(owner_connection) == PgProbe(owner_connection).counted(QUEUE)
