"""Executes one job in a flow run of its own: isolated queues, suspects, and people who want one job run."""

from __future__ import annotations

from uuid import UUID

from prefect import flow
from prefect.logging import get_run_logger

from durable_jobs.tasks.runtimes import open_runtime
from durable_jobs.tasks.shifts import execute_alone


@flow(name="execute-job", flow_run_name="job {job_id}", persist_result=False)
async def execute_job(
    job_id: UUID,
    tenant: str = "default",
) -> str:
    """Execute one waiting job here and now.

    A job that is not waiting (it runs, is done, or was cancelled) is left alone.

    Args:
        job_id: The waiting job to execute.
        tenant: Its tenant.
    """
    async with open_runtime() as runtime:
        ending = await execute_alone(runtime, tenant, job_id)
    get_run_logger().info("Job %s: %s", job_id, ending)
    return ending
