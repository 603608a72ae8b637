"""Submits one job from the Prefect UI, `prefect deployment run` or an automation."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from durable_jobs.tasks.runtimes import open_runtime
from durable_jobs.tasks.submitting import submit


@flow(name="submit-job", persist_result=False)
async def submit_job(
    job_type: Annotated[str, Field(description="Which kind of work.")],
    data: Annotated[
        dict[str, Any], Field(description="The request, as the payload model of the job type takes it.")
    ],
    tenant: Annotated[str, Field(description="In whose name.")] = "default",
    idempotency_key: Annotated[str | None, Field(description="A repetition returns the same job.")] = None,
    priority: Annotated[int, Field(ge=-100, le=100, description="Higher runs first.")] = 0,
    run_at: Annotated[datetime | None, Field(description="Not before this time, with its time zone.")] = None,
) -> str:
    """Submit a job.

    The job is stored at once and executed by the shift on duty. The run's log tells its id.
    """
    async with open_runtime() as runtime:
        job = await submit(
            runtime,
            job_type,
            data,
            tenant=tenant,
            idempotency_key=idempotency_key,
            priority=priority,
            run_at=run_at,
            submitted_by="prefect",
        )
    get_run_logger().info("Job %s of type %s is %s", job.job_id, job.job_type, job.state)
    return str(job.job_id)
