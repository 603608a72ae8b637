"""Shows the execution of a job as a Prefect task run named `TYPE job_id`, with its logs.

Prefect sees the job's type and id, never its payload or its result.
"""

from __future__ import annotations

from contextvars import ContextVar

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.context import TaskRunContext
from prefect.logging import get_run_logger

from durable_jobs.executor.visibility import Execute
from durable_jobs.jobs import ClaimedJob

_execution: ContextVar[Execute] = ContextVar("durable_jobs_execution")


@task(name="job", task_run_name="{job_type} {job_id}", cache_policy=NO_CACHE, persist_result=False, retries=0)
async def job_execution(job_type: str, job_id: str) -> None:  # noqa: ARG001 -- they name the task run
    """Execute one job of the surrounding shift."""
    context = TaskRunContext.get()
    await _execution.get()(get_run_logger(), context.task_run.id if context is not None else None)


async def show_as_task_run(job: ClaimedJob, execute: Execute) -> None:
    """Run `execute` as a task run; what it raises passes."""
    token = _execution.set(execute)
    try:
        await job_execution(job.job_type, str(job.job_id))
    finally:
        _execution.reset(token)
