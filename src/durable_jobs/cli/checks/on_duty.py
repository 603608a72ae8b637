"""Does anybody execute jobs, how long has the oldest waited, and is something paused?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from durable_jobs.cli.checks.findings import Finding, failed, ok, warning
from durable_jobs.cli.obstacles import DECLARE_IT, NOBODY, START_ONE, on_duty
from durable_jobs.moments import for_people
from durable_jobs.settings import Settings
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import ExecutorView, JobsOperator, QueueCount

LONG_WAIT = timedelta(minutes=15)


async def check_duty(store: JobsOperator, settings: Settings, now: datetime) -> list[Finding]:
    """Look at the executors, at what waits and at what is paused; `now` is the database's."""
    counts = [count for count in await store.counts() if count.state is JobState.PENDING]
    present = on_duty(await store.executors(), None, settings.running_stale_after)
    return [
        _check_shift(present, counts, now),
        _check_oldest(present, counts, now),
        await _check_paused(store),
    ]


def _check_shift(present: Sequence[ExecutorView], counts: Sequence[QueueCount], now: datetime) -> Finding:
    if present:
        where = ", ".join(f"{view.executor.host}:{view.executor.pid}" for view in present)
        return ok("shift on duty", f"{len(present)} on duty ({where})")
    due = sum(c.jobs for c in counts if c.oldest_run_at is not None and c.oldest_run_at <= now)
    if due:
        return failed("shift on duty", f"{NOBODY}, and jobs are due", START_ONE)
    return warning("shift on duty", f"{NOBODY}; nothing waits", START_ONE)


def _check_oldest(present: Sequence[ExecutorView], counts: Sequence[QueueCount], now: datetime) -> Finding:
    due = [(c.oldest_run_at, c) for c in counts if c.oldest_run_at is not None and c.oldest_run_at <= now]
    if not due:
        return ok("oldest waiting job", "nothing that is due waits")
    oldest, count = min(due, key=lambda pair: pair[0])
    waited = timedelta(seconds=round((now - oldest).total_seconds()))
    message = f"due for {waited} in queue {count.queue} ({count.job_type})"
    if waited < LONG_WAIT:
        return ok("oldest waiting job", message)
    serving = [view.executor for view in present if count.queue in view.executor.queues]
    if serving and not any(executor.executes(count.job_type) for executor in serving):
        return warning("oldest waiting job", f"{message}; no shift on duty declares this type", DECLARE_IT)
    return warning(
        "oldest waiting job",
        message,
        f"`durable-jobs workers` shows who serves the queue; raise concurrency in Queue({count.queue!r}, ...)",
    )


async def _check_paused(store: JobsOperator) -> Finding:
    paused = await store.paused()
    if not paused:
        return ok("paused", "nothing")
    names = ", ".join(f"{p.kind} {p.name} since {for_people(p.since)}" for p in paused)
    return warning("paused", names, "; ".join(f"durable-jobs resume {p.name}" for p in paused))
