"""`submit --wait`: looks at the job until it has ended, and says why nothing happens.

A job ends at FAILED; its retries are followed only when asked for, since a person or the dead-letter
flow makes them at some later time.
"""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import typer

from durable_jobs.cli.obstacles import obstacle
from durable_jobs.cli.options import WaitOptions
from durable_jobs.cli.output import answer_json, printable, say
from durable_jobs.cli.where import Jobs
from durable_jobs.errors import StoreUnavailable
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

FIRST_LOOK_S = 0.05
SLOWEST_LOOK_S = 1.0
EXPLAIN_AFTER_S = 2.0
EXPLAIN_EVERY_S = 10.0


async def wait_for(jobs: Jobs, job_id: UUID, options: WaitOptions, *, as_json: bool) -> None:
    """Wait for the end of a job and tell it.

    Raises:
        typer.Exit: with code 1 when it did not succeed, or not in time.
        StoreUnavailable: the database went away; the job stays registered.
    """
    try:
        job, ended = await _until_end(jobs, await jobs.get(job_id), options)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"job {job_id} is registered, but waiting for it ended: {error}") from error
    except asyncio.CancelledError:
        say(f"The job goes on without being waited for: durable-jobs get {job_id}")
        raise
    if as_json:
        answer_json(job.as_json(), indent=None)
    if not ended:
        say(f"Not waiting any longer: job {job.job_id} is {job.state}")
    elif job.state is not JobState.SUCCEEDED:
        say(f"Job {job.job_id} is {job.state}: {printable(job.failed_reason or 'somebody cancelled it')}")
    if not ended or job.state is not JobState.SUCCEEDED:
        raise typer.Exit(1)


async def _until_end(jobs: Jobs, job: Job, options: WaitOptions) -> tuple[Job, bool]:
    begun = time.monotonic()
    give_up = begun + options.timeout.total_seconds() if options.timeout else float("inf")
    explain_at = begun + EXPLAIN_AFTER_S
    explain = _Explanation(jobs)
    pause = FIRST_LOOK_S
    while not _has_ended(job, chain=options.chain):
        now = time.monotonic()
        if now >= min(explain_at, give_up):
            explain_at = now + EXPLAIN_EVERY_S
            await explain(job)
        if now >= give_up:
            return job, False
        await asyncio.sleep(min(pause, max(give_up - now, 0)))
        pause = min(pause * 1.3, SLOWEST_LOOK_S)
        job = await jobs.get(_followed(job))
    return job, True


class _Explanation:
    """Says why a job waits, and only says it again when the reason is another."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._said: str | None = None

    async def __call__(self, job: Job) -> None:
        waits = job.state is JobState.PENDING
        reason = await obstacle(self._jobs, job) if waits else None
        if reason is not None and reason != self._said:
            say(reason)
        self._said = reason


def _followed(job: Job) -> UUID:
    """Return the retry of a job that has one; only a followed chain comes here."""
    return job.retry_child_id or job.job_id


def _has_ended(job: Job, *, chain: bool) -> bool:
    if chain and job.state in (JobState.FAILED, JobState.RETRIED):
        return job.is_terminal and job.retry_child_id is None
    return job.state not in (JobState.PENDING, JobState.RUNNING)
