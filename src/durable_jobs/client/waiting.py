"""Waits for the end of a job: over its retries, over restarts of the API, until a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import httpx

from durable_jobs.api.models import JobStatus
from durable_jobs.client.asking import Call, Flow, Options, Pause, Until, ask
from durable_jobs.client.errors import ApiUnavailable, WaitTimeout
from durable_jobs.client.operations import JobId, get, id_of, parsed
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

FIRST_LOOK_S = 0.05
SLOWEST_LOOK_S = 1.0
_LIVE = (JobState.PENDING, JobState.RUNNING)

Progress = Callable[[JobStatus], None]


def wait(
    options: Options,
    job_id: JobId,
    *,
    timeout: timedelta | None = None,
    progress: Progress | None = None,
    chain: bool = True,
) -> Flow[Job]:
    """Wait until a job has ended, and return the job that ended it: the last one of its chain.

    Args:
        job_id: any job of a chain.
        timeout: how long to wait; without one for ever, as long as the API answers now and then.
        progress: called with each change of state or progress.
        chain: wait for retries too, and end when none can come any more; without it, FAILED is an end.

    Raises:
        WaitTimeout: it had not ended in time; it goes on without being waited for.
        JobNotFound: there is no such job.
        ApiUnavailable: no answer for longer than the client's patience, or until the timeout.
    """
    give_up = None if timeout is None else time.monotonic() + timeout.total_seconds()
    pause, told = FIRST_LOOK_S, None
    while True:
        status = yield from _look(options, job_id, give_up)
        if progress is not None and (now := (status.job_id, status.state, status.progress)) != told:
            progress(status)
            told = now
        following = status.lineage.retry_child_id if chain else None
        if following is not None:
            job_id = following
            continue
        if _has_ended(status, chain=chain):
            return (yield from get(options, status.job_id))
        left = SLOWEST_LOOK_S if give_up is None else give_up - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"job {status.job_id} is {status.state} and was not waited for any longer")
        yield Pause(min(pause, left))
        pause = min(pause * 1.3, SLOWEST_LOOK_S)


def _look(options: Options, job_id: JobId, give_up: float | None) -> Flow[JobStatus]:
    call = Call("GET", f"/jobs/{id_of(job_id)}/status", repeatable=True)
    # With a deadline an outage may last until then; without one, as long as for any call.
    until = Until.after(options.patience) if give_up is None else Until(give_up)
    try:
        response: httpx.Response = yield from ask(call, until)
    except ApiUnavailable as error:
        raise ApiUnavailable(f"job {job_id} goes on, but waiting for it ended: {error}") from error
    return parsed(JobStatus, response)


def _has_ended(status: JobStatus, *, chain: bool) -> bool:
    return status.terminal if chain else status.state not in _LIVE
