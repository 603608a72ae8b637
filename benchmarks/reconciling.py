"""A reconcile pass over 10,000 orphans of 100 tenants, beside history of different lengths.

Usage: python -m benchmarks.reconciling [ROWS ...]; without any: 10000 1000000 rows of finished history.

Half of the orphans are of a type that is replayed, each payload validated again; the others fail. Ten are settled
in a transaction. The last column is a pass that finds nothing to do. Prints a table in markdown.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID, uuid4

import psycopg
from tests.support import letter_types
from tests.support.history import add_jobs

from benchmarks.beside_history import APART, SIZES, TENANTS, Beside, histories, settle
from durable_jobs.reconciling import Reconciler
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore

ORPHANS = 10_000
REPLAYED, FAILING = "REPLAYED", "WORK"


class Figures(NamedTuple):
    """What was measured beside one length of history, in seconds."""

    settled: float
    nothing: float


def leave_orphans(owner: psycopg.Connection, executor: UUID) -> None:
    """Make jobs that run in an executor which has not been heard of for an hour."""
    owner.execute(
        "INSERT INTO job_executors (executor_id, host, pid, last_seen_at)"
        " VALUES (%s, 'gone', 1, now() - interval '1 hour')",
        [executor],
    )
    for tenant in TENANTS:
        for job_type in (REPLAYED, FAILING):
            each = ORPHANS // len(TENANTS) // 2
            add_jobs(owner, each, timedelta(minutes=5), tenant=tenant, job_type=job_type, apart=APART)
    owner.execute(
        "UPDATE job_history SET state = 'RUNNING', completed_at = NULL, result = NULL, executor_id = %s,"
        " claim_token = gen_random_uuid(), claim_count = 1, deadline_at = now() + interval '1 hour'"
        " WHERE completed_at > now() - interval '1 hour'",
        [executor],
    )


async def measure(beside: Beside) -> Figures:
    """Settle the orphans, and pass over nothing."""
    executor = uuid4()
    leave_orphans(beside.owner, executor)
    settle(beside.owner)
    settings = Settings(database_url=beside.application)
    registry = Registry.from_modules([letter_types])
    async with PgJobsStore.from_settings(settings) as store:
        took = []
        for _ in range(2):
            began = time.perf_counter()
            report = await Reconciler(store, registry, settings, dead=[executor]).run()
            took.append(time.perf_counter() - began)
            if not took[1:] and (report.faults or _by_state(report.settled) != _expected()):
                raise RuntimeError(f"not as expected: {report}")
    return Figures(*took)


def _by_state(settled: dict[tuple[str, JobState], int]) -> dict[JobState, int]:
    states: dict[JobState, int] = {}
    for (_, state), jobs in settled.items():
        states[state] = states.get(state, 0) + jobs
    return states


def _expected() -> dict[JobState, int]:
    return {JobState.PENDING: ORPHANS // 2, JobState.FAILED: ORPHANS // 2}


def main(sizes: list[int]) -> None:
    """Measure each length of history in a database of its own and print the table."""
    heads = ("rows of history", "settle 10,000 s", "jobs/s", "nothing to do s")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}\n")
    for beside in histories(sizes):
        f = asyncio.run(measure(beside))
        sys.stdout.write(
            f"| {beside.history:,} | {f.settled:.2f} | {ORPHANS / f.settled:,.0f} | {f.nothing:.3f} |\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(SIZES))
