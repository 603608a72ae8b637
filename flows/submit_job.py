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
    job_type: str,
    data: dict[str, Any],
    tenant: str = "default",
    idempotency_key: str | None = None,
    priority: Annotated[int, Field(ge=-100, le=100)] = 0,
    run_at: datetime | None = None,
) -> str:
    """Submit a job.

    The job is stored at once and executed by the shift on duty. The run's log tells its id.

    Args:
        job_type: Which kind of work.
        data: The request, as the payload model of the job type takes it.
        tenant: In whose name.
        idempotency_key: A repetition with the same key returns the same job.
        priority: Higher runs first, from -100 to 100.
        run_at: Not before this time, with its time zone.
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
