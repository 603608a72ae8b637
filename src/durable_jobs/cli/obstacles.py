"""Why a waiting job waits, as far as it can be seen: a pause, its time, nobody on duty, nobody who knows it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from durable_jobs.cli.where import Jobs
from durable_jobs.jobs import Job
from durable_jobs.moments import for_people
from durable_jobs.stores.protocols import ExecutorView

NOBODY = "no shift is on duty"
DECLARE_IT = "name its module in DURABLE_JOBS_MODULES of a worker"
START_ONE = "start the stack with `durable-jobs up`, or run the deployment execute-jobs/shift"

_CLAIMING = ("working", "idle")


async def obstacle(jobs: Jobs, job: Job) -> str | None:
    """Tell what a PENDING job waits for, or None when it is only a matter of turn."""
    for paused in await jobs.paused():
        if (paused.kind, paused.name) in (("queue", job.queue), ("type", job.job_type)):
            what = f"{paused.kind} {paused.name}"
            return f"Still waiting: {what} is paused (durable-jobs resume {paused.name})"
    if job.run_at > datetime.now(UTC):
        return f"Still waiting: the job is to run at {for_people(job.run_at)}"
    workers = [worker for worker in await jobs.workers() if worker["state"] in _CLAIMING]
    serving = [worker["jobTypes"] for worker in workers if job.queue in worker["queues"]]
    if not serving:
        return f"Still waiting: {NOBODY} for queue {job.queue}; {START_ONE}"
    if not any(types is None or job.job_type in types for types in serving):
        return f"Still waiting: no shift on duty declares the type {job.job_type}; {DECLARE_IT}"
    return None


def on_duty(
    executors: Sequence[ExecutorView], queue: str | None, stale_after: timedelta
) -> list[ExecutorView]:
    """Return executors that beat and claim, of one queue or of any."""
    return [
        view
        for view in executors
        if view.silence < stale_after
        and not view.draining
        and (queue is None or queue in view.executor.queues)
    ]
