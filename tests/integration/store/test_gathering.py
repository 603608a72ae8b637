"""Callers who register at once share statements and commits, never a failure."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from durable_jobs import job_tenant_scope
from durable_jobs.errors import QueueFull
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.within import within
from durable_jobs.stores.protocols import Registered
from tests.support.jobs import new_job

CALLERS = 40


async def at_once(store: PgJobsStore, *jobs: object) -> list[Registered | BaseException]:
    """Register each job by a caller of its own, all at once."""

    async def register(job: object) -> Registered:
        return (await store.register_idempotent([job]))[0]  # type: ignore[list-item]

    return await asyncio.gather(*(register(job) for job in jobs), return_exceptions=True)


@pytest.fixture(autouse=True)
def scope() -> object:
    with job_tenant_scope("acme"):
        yield


async def test_callers_at_once_share_transactions(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    jobs = [new_job({"n": n}) for n in range(CALLERS)]
    answers = await at_once(pg_store, *jobs)
    assert [a.job.job_id for a in answers if isinstance(a, Registered)] == [job.job_id for job in jobs]
    assert [a.job.payload for a in answers if isinstance(a, Registered)] == [{"n": n} for n in range(CALLERS)]
    rows, transactions = owner_connection.execute(
        "SELECT count(*), count(DISTINCT xmin::text) FROM job_history"
    ).fetchone()
    assert rows == CALLERS
    assert transactions < CALLERS / 4


async def test_the_bound_refuses_exactly_those_over_it(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    answers = await at_once(pg_store, *(new_job({"n": n}, max_pending=10) for n in range(CALLERS)))
    assert sum(isinstance(a, Registered) for a in answers) == 10
    assert sum(isinstance(a, QueueFull) for a in answers) == CALLERS - 10
    assert owner_connection.execute("SELECT count(*) FROM job_history").fetchone() == (10,)


async def test_a_key_that_must_wait_for_a_transaction_keeps_nobody_waiting(
    pg_store: PgJobsStore, database_url: str
) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as mine:
        await within(mine).register_idempotent([new_job(idempotency_key="open")])
        waiting = asyncio.create_task(at_once(pg_store, new_job(idempotency_key="open")))
        answers = await at_once(pg_store, *(new_job({"n": n}) for n in range(CALLERS)))
        assert all(isinstance(a, Registered) for a in answers)
        assert not waiting.done()
        await mine.commit()
    [answer] = await waiting
    assert isinstance(answer, Registered)
    assert not answer.created


async def test_what_the_database_refuses_harms_its_caller_alone(pg_store: PgJobsStore) -> None:
    broken = new_job()._replace(payload='{"nul": "\\u0000"}')
    answers = await at_once(pg_store, *(new_job({"n": n}) for n in range(10)), broken)
    assert isinstance(answers[10], psycopg.Error)
    assert sum(isinstance(a, Registered) for a in answers) == 10


async def test_a_caller_who_leaves_takes_nobody_along(pg_store: PgJobsStore) -> None:
    async def register(n: int) -> Registered:
        return (await pg_store.register_idempotent([new_job({"n": n})]))[0]

    callers = [asyncio.create_task(register(n)) for n in range(CALLERS)]
    await asyncio.sleep(0)
    for caller in callers[::2]:
        caller.cancel()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert all(isinstance(a, asyncio.CancelledError) for a in answers[::2])
    assert all(isinstance(a, Registered) for a in answers[1::2])


async def test_tenants_never_share_a_statement(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    async def register(tenant: str) -> None:
        with job_tenant_scope(tenant):
            await pg_store.register_idempotent([new_job()])

    await asyncio.gather(*(register(f"tenant-{n % 4}") for n in range(CALLERS)))
    mixed = "SELECT 1 FROM job_history GROUP BY xmin::text HAVING count(DISTINCT tenant_id) > 1"
    assert owner_connection.execute(mixed).fetchone() is None
