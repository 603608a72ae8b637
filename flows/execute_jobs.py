"""A shift: executes the jobs of all shared queues until the next shift relieves it."""

from __future__ import annotations

from prefect import flow

from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.tasks.runtimes import open_runtime
from durable_jobs.tasks.shifts import leave_shift_summary, work_a_shift


@flow(name="execute-jobs", persist_result=False)
async def execute_jobs(until_empty: bool = False, queues: list[str] | None = None) -> ShiftSummary:
    """Execute due jobs.

    A shift claims jobs, executes them within the bounds of their queues, and is relieved by the next shift.

    Args:
        until_empty: End as soon as nothing is due, beside the shifts on duty.
        queues: Only these queues, beside the shifts on duty and until stopped; all shared ones when empty.
    """
    async with open_runtime() as runtime:
        summary = await work_a_shift(runtime, until_empty=until_empty, queues=queues)
    await leave_shift_summary(summary)
    return summary
