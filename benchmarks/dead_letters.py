"""A dead-letter pass over 10,000 failed jobs of 100 tenants, beside history of different lengths.

Usage: python -m benchmarks.dead_letters [ROWS ...]; without any: 10000 1000000 rows of finished history.

Everything in one Postgres of its own, fsync on, row-level security on, each payload validated, each tenant in
transactions of 50. The last column is a pass that finds nothing to do. Prints a table in markdown.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psycopg
from tests.support import letter_types
from tests.support.history import DAY, add_jobs

from durable_jobs.dead_letters.health import LATELY
from durable_jobs.dead_letters.retrying import Retrier
from durable_jobs.embedded import PostgresCluster
from durable_jobs.registry import Registry
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore

SIZES = (10_000, 1_000_000)
TENANTS = 100
LETTERS = 10_000
PART = 200_000
APART = timedelta(milliseconds=10)


class Figures(NamedTuple):
    """What was measured beside one length of history, in seconds."""

    history: int
    stats: float
    retried: float
    abandoned: float
    nothing: float


def fill(owner: psycopg.Connection, history: int) -> None:
    """Make finished jobs of yesterday and dead letters of the last minutes, spread over the tenants."""
    for tenant in range(TENANTS):
        for begun in range(0, history // TENANTS, PART):
            part = min(PART, history // TENANTS - begun)
            add_jobs(owner, part, DAY + APART * begun, tenant=f"t{tenant:03}", apart=APART)
        add_jobs(owner, LETTERS // TENANTS, timedelta(minutes=5), tenant=f"t{tenant:03}", state="FAILED")
    owner.execute("VACUUM ANALYZE")
    owner.execute("CHECKPOINT")


async def measure(application: str, owner: psycopg.Connection, history: int) -> Figures:
    """Count, retry all, let all fail at their limit, abandon all, and pass over nothing."""
    registry = Registry.from_modules([letter_types])
    async with PgJobsStore.from_settings(Settings(database_url=application)) as store:
        stats = await _timed_stats(store)
        retried, took_retry = await _timed_pass(store, registry)
        owner.execute(
            "UPDATE job_history SET state = 'FAILED', failed_reason = 'ValueError: no', completed_at = now(),"
            " retry_count = max_retries, pending_shard = NULL WHERE state = 'PENDING'"
        )
        abandoned, took_abandon = await _timed_pass(store, registry)
        _, took_nothing = await _timed_pass(store, registry)
    if not retried == abandoned == LETTERS:
        raise RuntimeError(f"{retried} were retried and {abandoned} abandoned, not {LETTERS}")
    return Figures(history, stats, took_retry, took_abandon, took_nothing)


async def _timed_stats(store: PgJobsStore) -> float:
    began = time.perf_counter()
    counted = [c for t in await store.tenants("any") for c in await store.count_letters(t, since=LATELY)]
    if sum(count.letters for count in counted) != LETTERS:
        raise RuntimeError(f"{counted} were counted, not {LETTERS}")
    return time.perf_counter() - began


async def _timed_pass(store: PgJobsStore, registry: Registry) -> tuple[int, float]:
    began = time.perf_counter()
    retrier = Retrier(store, registry, by="benchmark")
    done = [await retrier.retry_tenant(tenant, limit=LETTERS) for tenant in await store.tenants("failed")]
    acted = sum(len(one.retried) + one.abandoned.total() for one in done)
    return acted, time.perf_counter() - began


def main(sizes: list[int]) -> None:
    """Measure each length of history in a database of its own and print the table."""
    heads = ("rows of history", "stats s", "retry 10,000 s", "jobs/s", "abandon 10,000 s", "nothing to do s")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}\n")
    with tempfile.TemporaryDirectory(prefix="durable-jobs-bench-") as folder:
        Path(folder).chmod(0o711)
        cluster = PostgresCluster(
            Path(folder) / "home", settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}
        )
        cluster.start()
        try:
            for history in sizes:
                f = _in_a_database(cluster, history)
                sys.stdout.write(
                    f"| {f.history:,} | {f.stats:.2f} | {f.retried:.2f} | {LETTERS / f.retried:,.0f} |"
                    f" {f.abandoned:.2f} | {f.nothing:.3f} |\n"
                )
                sys.stdout.flush()
        finally:
            cluster.remove()
    sys.stdout.write(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n")


def _in_a_database(cluster: PostgresCluster, history: int) -> Figures:
    name = f"letters_{history}"
    cluster.create_database(name)
    admin = cluster.admin_url(name)
    migrate(admin)
    application = provision(admin, secrets.token_urlsafe(16))
    with psycopg.connect(admin, autocommit=True) as owner:
        fill(owner, history)
        return asyncio.run(measure(application, owner, history))


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
