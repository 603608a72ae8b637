"""The built-in job type PREFECT_FLOW_RUN: a job that stands for one run of a Prefect deployment.

Every program can validate and submit it. Only a shift executes it, and finds the code that speaks with
Prefect through an entry point, because nothing here imports Prefect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from durable_jobs.context import JobContext
from durable_jobs.errors import NotRetryable
from durable_jobs.flow_runs.payload import RunDeployment
from durable_jobs.job_types import job_type
from durable_jobs.queues import Queue

NAME = "PREFECT_FLOW_RUN"
FOLLOWERS = "durable_jobs.flow_run_followers"
# A followed run holds a row and a coroutine, so the bound is for Prefect's sake and not for ours.
FLOW_RUNS = Queue("prefect-flow-runs", concurrency=1000, max_pending=10_000)
# Begins anew with each shift that takes the job over. The time of a run is its deployment's policy.
LONGEST = timedelta(days=30)

Follow = Callable[[RunDeployment, JobContext], Awaitable[Any]]


@job_type(
    NAME,
    queue=FLOW_RUNS,
    max_retries=3,
    retry_backoff=lambda request: request.retry_backoff,
    timeout=LONGEST,
    on_orphan="replay",
    visibility="history",
    follows=True,
)
async def run_deployment(request: RunDeployment, context: JobContext) -> Any:
    """Run the deployment, or find the run that this job has already started, and follow it to its end.

    Raises:
        NotRetryable: the deployment is gone, its parameters do not fit any more, or Prefect is not installed.
        CalledOff: a person cancelled the run.
        FlowRunFailed: it failed, crashed, or was ended by its runner.
    """
    return await _follower()(request, context)


@cache
def _follower() -> Follow:
    for point in entry_points(group=FOLLOWERS):
        follow: Follow = point.load()
        return follow
    raise NotRetryable(f"nothing here follows flow runs: no package offers the entry point group {FOLLOWERS}")
