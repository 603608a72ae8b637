"""Purge rows a second beside a bare batched DELETE, and what submissions feel of it.

Usage: python -m benchmarks.purge [ROWS ...]; without any: 100000 2000000.

Everything in one Postgres of its own, fsync on, with a statement timeout of 5 s. Each due job has an effect,
which goes too. The bare DELETE runs as the owner, past row-level security, in the same batches over the same
index, and takes no effects and no events. Prints a table in markdown.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import psycopg
from tests.support.history import DAY, add_jobs
from tests.support.jobs import enter, new_job

from durable_jobs.embedded import PostgresCluster
from durable_jobs.retention import Budget, Periods, look, purge
from durable_jobs.retention.walking import LARGEST
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import app_role, provision
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.retention import GonePage, Limits, Position, Purgeable
from durable_jobs.tenants import job_tenant_scope

SIZES = (100_000, 2_000_000)
PART = 200_000
"""Rows that are made at once, and rows of the bare DELETE."""
APART = timedelta(milliseconds=10)
QUIET = 5.0
"""Seconds for which submissions are timed before the purge."""
BARE = """
DELETE FROM job_history WHERE job_id IN (
    SELECT job_id FROM job_history
    WHERE tenant_id = 'bare' AND completed_at < now() - interval '30 days'
    ORDER BY completed_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
"""


class Figures(NamedTuple):
    """What was measured for one size."""

    rows: int
    bare: float
    purged: float
    whole: float
    looked: float
    longest_ms: float
    quiet_ms: float
    busy_ms: float


def fill(owner: psycopg.Connection, rows: int) -> None:
    """Make due jobs with effects, and due jobs for the bare DELETE, and younger ones."""
    for begun in range(0, rows, PART):
        age = 100 * DAY + APART * begun
        add_jobs(owner, min(PART, rows - begun), age, effects=True, apart=APART)
    add_jobs(owner, min(PART, rows), 100 * DAY, tenant="bare", apart=APART)
    add_jobs(owner, min(PART, rows), DAY, tenant="acme", apart=APART)
    owner.execute("VACUUM ANALYZE")
    owner.execute("CHECKPOINT")


def delete_bare(owner: psycopg.Connection) -> float:
    """Delete without any rule, and return rows a second."""
    rows, began = 0, time.perf_counter()
    while deleted := owner.execute(BARE, {"limit": LARGEST}).rowcount:
        rows += deleted
    return rows / (time.perf_counter() - began)


@asynccontextmanager
async def submitting(store: PgJobsStore) -> AsyncIterator[list[float]]:
    """Submit a job and beat every few milliseconds for the block; seconds of each submission."""
    took: list[float] = []
    executor, over = await enter(store), asyncio.Event()

    async def submit() -> None:
        while not over.is_set():
            began = time.perf_counter()
            with job_tenant_scope("busy"):
                await store.register_idempotent([new_job()])
            took.append(time.perf_counter() - began)
            await store.beat(executor)
            await asyncio.sleep(0.005)

    task = asyncio.create_task(submit())
    try:
        yield took
    finally:
        over.set()
        await task


def p95_ms(took: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return statistics.quantiles(took, n=20)[-1] * 1000


class TimedStore(PgJobsStore):
    """Remembers how long purging took, in seconds."""

    longest = 0.0
    jobs_took = 0.0

    async def purge(
        self,
        what: Purgeable,
        run_id: UUID | None,
        tenant_id: str | None,
        limits: Limits,
        *,
        after: Position | None = None,
        limit: int,
    ) -> GonePage:
        """Purge a page, timed."""
        began = time.perf_counter()
        page = await super().purge(what, run_id, tenant_id, limits, after=after, limit=limit)
        took = time.perf_counter() - began
        self.longest = max(self.longest, took)
        self.jobs_took += took if what == "jobs" else 0
        return page


async def measure(application: str, rows: int, bare: float) -> Figures:
    """Purge everything that is due while jobs are submitted."""
    async with TimedStore.from_settings(Settings(database_url=application)) as store:
        limits = await Periods().limits(store, DAY)
        began = time.perf_counter()
        due = (await look(store, limits)).total("due")
        looked = time.perf_counter() - began
        async with submitting(store) as quiet:
            await asyncio.sleep(QUIET)
        async with submitting(store) as busy:
            began = time.perf_counter()
            purged = await purge(store, None, limits, Budget(), tenants=["acme"])
            whole = time.perf_counter() - began
        if not due == purged.total == purged.effects == rows:
            raise RuntimeError(
                f"{due} were due, {purged.total} and {purged.effects} effects went, not {rows}"
            )
        return Figures(
            rows,
            bare,
            rows / store.jobs_took,
            whole,
            looked,
            store.longest * 1000,
            p95_ms(quiet),
            p95_ms(busy),
        )


def main(sizes: list[int]) -> None:
    """Measure each size in a database of its own and print the table."""
    heads = (
        "due rows", "bare DELETE rows/s", "purge rows/s", "ratio", "all with effects s", "a look s",
        "longest transaction ms", "submit p95 ms before", "while purging",
    )  # fmt: skip
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}\n")
    with tempfile.TemporaryDirectory(prefix="durable-jobs-bench-") as folder:
        Path(folder).chmod(0o711)
        cluster = PostgresCluster(
            Path(folder) / "home", settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}
        )
        cluster.start()
        try:
            for rows in sizes:
                name = f"purge_{rows}"
                cluster.create_database(name)
                admin = cluster.admin_url(name)
                migrate(admin)
                application = provision(admin, secrets.token_urlsafe(16))
                with psycopg.connect(admin, autocommit=True) as owner:
                    owner.execute(f"ALTER ROLE {app_role(name)} SET statement_timeout = '5s'")
                    fill(owner, rows)
                    bare = delete_bare(owner)
                f = asyncio.run(measure(application, rows, bare))
                sys.stdout.write(
                    f"| {f.rows:,} | {f.bare:,.0f} | {f.purged:,.0f} | {f.purged / f.bare:.2f} | {f.whole:.1f} |"
                    f" {f.looked:.1f} | {f.longest_ms:.0f} | {f.quiet_ms:.1f} | {f.busy_ms:.1f} |\n"
                )
                sys.stdout.flush()
        finally:
            cluster.remove()
    sys.stdout.write(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
