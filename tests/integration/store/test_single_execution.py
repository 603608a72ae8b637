"""T-2: whatever number of processes claim the same jobs, each job is executed once."""

from __future__ import annotations

import asyncio
from collections import Counter

import psycopg
import pytest

from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.support.eventually import eventually
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import PgProbe
from tests.support.processes import running, start, told

PROCESSES = 4
BY_ID = 300
IN_BATCHES = 3_000


@pytest.mark.timeout(300)
async def test_four_processes_race_for_thousands_of_jobs(
    pg_store: PgJobsStore, database_url: str, owner_connection: psycopg.Connection
) -> None:
    by_id = [new_job(queue="alone") for _ in range(BY_ID)]
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent(by_id)
    for tenant in ("acme", "other", "third"):
        with job_tenant_scope(tenant):
            await pg_store.register_idempotent([new_job() for _ in range(IN_BATCHES // 3)])
    ids = ",".join(str(job.job_id) for job in by_id)
    module = "tests.integration.store.racing_claimer"
    with running([start(module, database_url, ids) for _ in range(PROCESSES)]) as processes:
        answers = [answer for process in processes for answer in told(process)]
    won = Counter(job_id for answer in answers for job_id in answer["one_by_one"])
    executed = Counter(job_id for answer in answers for job_id in answer["executed"])
    assert (len(won), max(won.values())) == (BY_ID, 1)
    assert (len(executed), max(executed.values())) == (IN_BATCHES, 1)
    assert sum(bool(answer["executed"]) for answer in answers) > 1, "there was no race"
    rows = PgProbe(owner_connection).jobs()
    assert {row["claim_count"] for row in rows} == {1}
    assert Counter(row["state"] for row in rows) == {"RUNNING": BY_ID, "SUCCEEDED": IN_BATCHES}


async def test_one_outcome_stands_when_many_race_for_it(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    executor = await enter(pg_store)
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job() for _ in range(100)])
    jobs = (await pg_store.claim(executor, QUEUE, 100)).jobs
    unwritten = await asyncio.gather(
        pg_store.finish([succeeded(job) for job in jobs]),
        pg_store.finish([failed(job) for job in reversed(jobs)]),
        pg_store.release([(job, True) for job in jobs], "worker shut down"),
        pg_store.fail_overdue(margin=jobs[0].timeout * -2),
    )
    rows = {row["job_id"]: row for row in PgProbe(owner_connection).jobs()}
    lost = {one.job_id for answer in unwritten[:2] for one in answer}
    for job in jobs:
        state = rows[job.job_id]["state"]
        assert state in ("SUCCEEDED", "FAILED", "PENDING")
        # Two outcomes at most one of which was written: one of them heard that it was not.
        assert job.job_id in lost
    assert sum(len(answer) for answer in unwritten[:2]) >= 100


async def test_a_finish_loses_nothing_to_progress_on_the_same_row(
    pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    """The finish finds its rows by their place, which an update moves: it must follow them."""
    executor = await enter(pg_store)
    for _ in range(8):
        with job_tenant_scope("acme"):
            await pg_store.register_idempotent([new_job() for _ in range(25)])
            jobs = (await pg_store.claim(executor, QUEUE, 25)).jobs
            stop = asyncio.Event()

            async def move(jobs: list = jobs, stop: asyncio.Event = stop) -> None:
                while not stop.is_set():
                    for job in reversed(jobs):
                        await pg_store.update(job.job_id, progress={"moved": True})

            moving = [asyncio.create_task(move()) for _ in range(3)]
            await eventually(lambda: _all_moved(owner_connection))
            assert await pg_store.finish([succeeded(job) for job in jobs]) == []
            stop.set()
            await asyncio.gather(*moving)
    rows = PgProbe(owner_connection).jobs()
    assert {row["state"] for row in rows} == {"SUCCEEDED"}
    assert len(rows) == 200


def _all_moved(connection: psycopg.Connection) -> bool:
    running_rows = [row for row in PgProbe(connection).jobs() if row["state"] == "RUNNING"]
    return all(row["progress"] for row in running_rows)


async def test_a_finish_waits_for_a_row_that_is_being_changed(
    pg_store: PgJobsStore, admin_url: str, owner_connection: psycopg.Connection
) -> None:
    executor = await enter(pg_store)
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job()])
    [job] = (await pg_store.claim(executor, QUEUE, 1)).jobs
    async with await psycopg.AsyncConnection.connect(admin_url) as other:
        await other.execute("UPDATE job_history SET progress = '{}'")
        finishing = asyncio.create_task(pg_store.finish([succeeded(job)]))
        await eventually(lambda: _is_waiting(owner_connection))
        await other.commit()
        assert await finishing == []
    with job_tenant_scope("acme"):
        done = await pg_store.get(job.job_id)
    assert (done.state, done.progress) == ("SUCCEEDED", {})


def _is_waiting(connection: psycopg.Connection) -> bool:
    statement = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%finish_jobs%'"
    return bool(connection.execute(statement).fetchall())
