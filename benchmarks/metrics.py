"""What five scrapes a second cost beside a history of any size: time, pages, processor, submissions.

Usage: python -m benchmarks.metrics [ROWS ...]; without any: 20000 2000000.

Everything in one Postgres of its own, fsync on. Half of the history is one tenant's, the rest a hundred
others'; 5,000 jobs ended within the last five minutes, 1,000 wait, 200 are dead letters. Prints a table
in markdown.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psutil
import psycopg
from tests.support.history import add_jobs
from tests.support.jobs import new_job

from durable_jobs.embedded import PostgresCluster
from durable_jobs.metrics import Metrics
from durable_jobs.metrics.reading import FiguresReader
from durable_jobs.queues import Queue
from durable_jobs.registry import Registry
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tenants import job_tenant_scope

SIZES = (20_000, 2_000_000)
PART = 200_000
TENANTS = 100
READINGS = 20
SECONDS = 15.0
EVERY_S = 0.2
CALLS = (
    "SELECT measure_live(ARRAY['work'], ARRAY['WORK'], '60 s', NULL)",
    "SELECT measure_recent(ARRAY['work'], ARRAY['WORK'], ARRAY['5 min', '1 min']::interval[], 20000, NULL)",
)


class Figures(NamedTuple):
    """What was measured for one size."""

    rows: int
    reading_ms: float
    pages: int
    scrape_ms: float
    quiet_cpu: float
    busy_cpu: float
    quiet_ms: float
    busy_ms: float


def fill(owner: psycopg.Connection, rows: int) -> None:
    """Make a history of the last 60 days, and what is live."""
    for begun in range(0, rows // 2, PART):
        n = min(PART, rows // 2 - begun)
        add_jobs(owner, n, timedelta(hours=1, seconds=2 * begun), apart=timedelta(seconds=2))
    for tenant in range(TENANTS):
        n = rows // 2 // TENANTS
        add_jobs(owner, n, timedelta(hours=1), tenant=f"tenant-{tenant}", apart=timedelta(seconds=60))
    add_jobs(owner, 5_000, timedelta(0), apart=timedelta(milliseconds=50))
    add_jobs(owner, 200, timedelta(hours=1), state="FAILED", apart=timedelta(seconds=9))
    owner.execute("VACUUM ANALYZE")
    owner.execute("CHECKPOINT")


def pages(url: str) -> int:
    """Return how many pages of Postgres one reading touches."""
    total = 0
    with psycopg.connect(url) as connection:
        for call in CALLS:
            connection.execute(call)
            row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}").fetchone()
            document = row[0] if row else []
            plan = (document if isinstance(document, list) else json.loads(document))[0]["Plan"]
            total += int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
    return total


def cpu(postmaster: psutil.Process) -> float:
    """Return the processor time (s) of this process and of the Postgres that it uses."""
    used = 0.0
    for process in [psutil.Process(), postmaster, *postmaster.children()]:
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        used += times.user + times.system
    return used


async def submitting(store: PgJobsStore, meanwhile: Callable[[], asyncio.Task[None] | None]) -> list[float]:
    """Submit a job now and then while something else happens; the seconds that each submission took."""
    task, took = meanwhile(), []
    until = time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        with job_tenant_scope("busy"):
            await store.register_idempotent([new_job()])
        took.append(time.perf_counter() - began)
        await asyncio.sleep(0.005)
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return took


async def measure(url: str, rows: int, postmaster: psutil.Process) -> Figures:
    """Read, scrape, and submit with and without scrapes."""
    settings = Settings(database_url=url)
    registry = Registry.of([], [Queue("work", max_pending=None)])
    reader = FiguresReader.from_settings(settings, registry)
    await reader.open()
    readings = [f.took_s for _ in range(READINGS) if (f := await reader.read()) is not None]
    await reader.close()
    scrapes: list[float] = []
    async with PgJobsStore.from_settings(settings) as store, Metrics.from_settings(settings, registry) as met:
        with job_tenant_scope("busy"):
            await store.register_idempotent([new_job() for _ in range(1_000)])

        async def scrape() -> None:
            while True:
                began = time.perf_counter()
                await met.scrape()
                scrapes.append(time.perf_counter() - began)
                await asyncio.sleep(EVERY_S)

        before = cpu(postmaster)
        quiet = await submitting(store, lambda: None)
        between = cpu(postmaster)
        busy = await submitting(store, lambda: asyncio.create_task(scrape()))
        after = cpu(postmaster)
    return Figures(
        rows,
        statistics.median(readings) * 1000,
        pages(url),
        statistics.median(scrapes) * 1000,
        (between - before) / SECONDS,
        (after - between) / SECONDS,
        _p95_ms(quiet),
        _p95_ms(busy),
    )


def _p95_ms(took: list[float]) -> float:
    return statistics.quantiles(took, n=20)[-1] * 1000


def main(sizes: list[int]) -> None:
    """Measure each size in a database of its own and print the table."""
    heads = (
        "rows of history", "a reading ms", "pages of a reading", "a scrape ms", "cores without scrapes",
        "cores with 5 scrapes/s", "submit p95 ms without", "with 5 scrapes/s",
    )  # fmt: skip
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}\n")
    with tempfile.TemporaryDirectory(prefix="durable-jobs-bench-") as folder:
        Path(folder).chmod(0o711)
        cluster = PostgresCluster(
            Path(folder) / "home", settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}
        )
        cluster.start()
        [pid_file] = Path(folder).rglob("postmaster.pid")
        postmaster = psutil.Process(int(pid_file.read_text().split()[0]))
        try:
            for rows in sizes:
                name = f"metrics_{rows}"
                cluster.create_database(name)
                admin = cluster.admin_url(name)
                migrate(admin)
                application = provision(admin, secrets.token_urlsafe(16))
                with psycopg.connect(admin, autocommit=True) as owner:
                    fill(owner, rows)
                f = asyncio.run(measure(application, rows, postmaster))
                sys.stdout.write(
                    f"| {f.rows:,} | {f.reading_ms:.1f} | {f.pages:,} | {f.scrape_ms:.1f} | {f.quiet_cpu:.3f} |"
                    f" {f.busy_cpu:.3f} | {f.quiet_ms:.1f} | {f.busy_ms:.1f} |\n"
                )
                sys.stdout.flush()
                if os.environ.get("BENCH_KEEP"):
                    sys.stdout.write(f"{admin}\n{application}\n")
                    sys.stdout.flush()
                    sys.stdin.readline()
        finally:
            cluster.remove()
    sys.stdout.write(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
