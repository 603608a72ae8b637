"""A dead-letter pass over 10,000 failed jobs of 100 tenants, beside history of different lengths.

Usage: python -m benchmarks.dead_letters [ROWS ...]; without any: 10000 1000000 rows of finished history.

Each payload is validated, each tenant in transactions of 50. The last column is a pass that finds nothing to do.
Prints a table in markdown.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from typing import NamedTuple

from tests.support import letter_types
from tests.support.history import add_jobs

from benchmarks.beside_history import APART, SIZES, TENANTS, Beside, histories, settle
from durable_jobs.dead_letters.health import LATELY
from durable_jobs.dead_letters.retrying import Retrier
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore

LETTERS = 10_000


class Figures(NamedTuple):
    """What was measured beside one length of history, in seconds."""

    stats: float
    retried: float
    abandoned: float
    nothing: float


async def measure(beside: Beside) -> Figures:
    """Count, retry all, let all fail at their limit, abandon all, and pass over nothing."""
    for tenant in TENANTS:
        each = LETTERS // len(TENANTS)
        add_jobs(beside.owner, each, timedelta(minutes=5), tenant=tenant, state="FAILED", apart=APART)
    settle(beside.owner)
    registry = Registry.from_modules([letter_types])
    async with PgJobsStore.from_settings(Settings(database_url=beside.application)) as store:
        stats = await _timed_stats(store)
        retried, took_retry = await _timed_pass(store, registry)
        beside.owner.execute(
            "UPDATE job_history SET state = 'FAILED', failed_reason = 'ValueError: no', completed_at = now(),"
            " retry_count = max_retries, pending_shard = NULL WHERE state = 'PENDING'"
        )
        abandoned, took_abandon = await _timed_pass(store, registry)
        _, took_nothing = await _timed_pass(store, registry)
    if not retried == abandoned == LETTERS:
        raise RuntimeError(f"{retried} were retried and {abandoned} abandoned, not {LETTERS}")
    return Figures(stats, took_retry, took_abandon, took_nothing)


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
    for beside in histories(sizes):
        f = asyncio.run(measure(beside))
        sys.stdout.write(
            f"| {beside.history:,} | {f.stats:.2f} | {f.retried:.2f} | {LETTERS / f.retried:,.0f} |"
            f" {f.abandoned:.2f} | {f.nothing:.3f} |\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
