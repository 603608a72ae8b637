"""A purge of much: killed in the middle, under a short statement timeout, while jobs are submitted."""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from durable_jobs.errors import RetentionViolated, StoreUnavailable
from durable_jobs.retention import Budget, Periods, look, purge
from durable_jobs.retention.walking import LARGEST, Pace, walk
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.retention import AgedPage, Position
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import open_store
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.history import DAY, add_chain, add_jobs, rows_of
from tests.support.jobs import enter, new_job
from tests.support.purges import FLOOR, purge_once

OLD = 31 * DAY
MANY = 20_000
PROGRAM = """
import asyncio, sys
from durable_jobs.cli.main import main
sys.argv = ["durable-jobs", "purge"]
main()
"""


@pytest.fixture
def own(new_database: Callable[[], Urls]) -> Urls:
    """A database whose settings a test may change."""
    return new_database()


@asynccontextmanager
async def submitting(store: PgJobsStore) -> AsyncIterator[list[float]]:
    """Submit jobs and beat, one after the other, for the block; the times of the submissions, in seconds."""
    took: list[float] = []
    executor = await enter(store)

    async def submit() -> None:
        while True:
            began = time.perf_counter()
            with job_tenant_scope("busy"):
                await store.register_idempotent([new_job()])
            took.append(time.perf_counter() - began)
            assert await store.beat(executor)

    task = asyncio.create_task(submit())
    try:
        yield took
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_purge_that_is_killed_has_gone_on_and_the_next_one_ends_it(own: Urls) -> None:
    """20,000 due jobs with effects, a statement timeout of 5 s, kill -9 in the middle, submissions running."""
    with psycopg.connect(own.admin, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {owner.info.dbname} SET statement_timeout = '5s'")
        add_jobs(owner, MANY, 100 * DAY, effects=True, apart=timedelta(seconds=1))
        add_jobs(owner, 200, DAY, effects=True)
        kept = add_chain(owner, [100 * DAY, DAY])
        async with open_store(own.application) as store, submitting(store) as took:
            environment = os.environ | {"DURABLE_JOBS_DATABASE_URL": own.application}
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, env=environment, stdout=asyncio.subprocess.DEVNULL
            )
            await eventually(lambda: rows_below(owner, MANY), timedelta(seconds=60), every=timedelta(0))
            process.send_signal(signal.SIGKILL)
            await process.wait()
            # What the server had begun for the killed process, it ends.
            await eventually(lambda: not purging(owner))
            left = old_rows(owner)
            assert 0 < left < MANY + 1
            [(counted,)] = owner.execute("SELECT jobs FROM purge_runs").fetchall()
            assert counted == MANY + 1 - left
            assert (await store.purge_state()).failing_runs == 0  # it may be under way, for all we know
            done = await purge_once(store)
        assert done.purged.total == left - 1
        assert old_rows(owner) == 1
        assert rows_of(owner, "job_effects") == 200
        assert {row[0] for row in owner.execute("SELECT job_id FROM job_history WHERE retry_count > 0")} == {
            kept[1]
        }
        assert len(took) > 50
        assert statistics.quantiles(took, n=20)[-1] < 1.0


def purging(owner: psycopg.Connection) -> bool:
    return bool(
        owner.execute(
            "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND state <> 'idle' AND query ILIKE '%purge%'"
        ).fetchall()
    )


def old_rows(owner: psycopg.Connection) -> int:
    [(n,)] = owner.execute("SELECT count(*) FROM job_history WHERE completed_at < now() - interval '2 days'")
    return int(n)


def rows_below(owner: psycopg.Connection, limit: int) -> bool:
    return old_rows(owner) < limit


async def test_a_statement_timeout_makes_pages_smaller_instead_of_failing(own: Urls) -> None:
    with psycopg.connect(own.admin, autocommit=True) as owner:
        add_jobs(owner, 3_000, OLD)
        # So slow that a page of 500 is cut off and one of some dozens is not.
        owner.execute(
            "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(0.001); RETURN OLD; END'"
        )
        owner.execute("CREATE TRIGGER slow BEFORE DELETE ON job_history FOR EACH ROW EXECUTE FUNCTION slow()")
        owner.execute(f"ALTER DATABASE {owner.info.dbname} SET statement_timeout = '400ms'")
        async with open_store(own.application) as store:
            limits = await Periods().limits(store, FLOOR)
            purged = await purge(store, None, limits, Budget(timedelta(seconds=8)))
        assert purged.total > 0
        assert rows_of(owner, "job_history") == 3_000 - purged.total


async def test_an_outage_of_the_database_is_waited_for_and_then_told() -> None:
    """Page after page is asked again; only when nobody answers for long does the run end."""
    asked = 0

    async def step(after: Position | None, limit: int) -> AgedPage:
        nonlocal asked
        asked += 1
        if asked < 3:
            raise StoreUnavailable("it is starting up")
        return AgedPage(examined=0, at=None, id=None, buckets={})

    pages = [page async for page in walk(step, Pace(), waits=(0.0, 0.0))]
    assert (len(pages), asked) == (1, 3)

    async def away(after: Position | None, limit: int) -> AgedPage:
        raise StoreUnavailable("it is away")

    with pytest.raises(StoreUnavailable, match="it is away"):
        [page async for page in walk(away, Pace(), waits=(0.0, 0.0))]


async def test_pages_grow_while_they_are_quick_and_shrink_when_they_are_slow() -> None:
    pace = Pace()
    for _ in range(10):
        pace.took(0.01)
    assert pace.rows == LARGEST
    pace.took(0.2)
    assert pace.rows == LARGEST
    for _ in range(20):
        pace.took(1.0)
    assert pace.rows == 1


async def test_the_time_budget_holds_and_the_next_runs_go_on(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_jobs(owner, MANY, OLD, apart=timedelta(milliseconds=1))
    limits = await Periods().limits(pg_store, FLOOR)
    began = time.monotonic()
    purged = await purge(pg_store, None, limits, Budget(timedelta(milliseconds=300)))
    assert time.monotonic() - began < 30
    assert purged.out_of_time
    assert 0 < purged.total < MANY
    left = (await look(pg_store, limits)).total("due")
    assert left == MANY - purged.total
    with pytest.raises(RetentionViolated, match="the time budget was over first"):
        await purge_once(pg_store, time_budget=timedelta(milliseconds=1))
    await purge_once(pg_store)
    assert rows_of(owner, "job_history") == 0
