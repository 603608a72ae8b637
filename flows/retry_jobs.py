"""Retries the dead letters that a person chooses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from durable_jobs.dead_letters.store import LetterFilter
from durable_jobs.tasks.retrying import require_choice, retry_chosen
from durable_jobs.tasks.runtimes import open_runtime
from durable_jobs.tenants import DEFAULT_TENANT


@flow(name="retry-jobs", persist_result=False)
async def retry_jobs(
    job_ids: Annotated[list[UUID] | None, Field(description="Only these jobs.")] = None,
    job_type: Annotated[str | None, Field(description="Only this job type.")] = None,
    since: Annotated[
        datetime | None, Field(description="Only what failed since, with its time zone.")
    ] = None,
    reason_like: Annotated[
        str | None, Field(description="Only what failed with this in its reason; % stands for any text.")
    ] = None,
    tenant: Annotated[str, Field(description="In whose name.")] = DEFAULT_TENANT,
    limit: Annotated[int, Field(ge=1, strict=True, description="Most retries.")] = 1_000,
    dry_run: Annotated[bool, Field(strict=True, description="Only show which jobs fit.")] = True,
) -> dict[str, Any]:
    """Retry failed jobs of one tenant.

    At least one of the first four says which; without the tick at dry run they are retried.
    """
    wanted = require_choice(
        LetterFilter(None if job_ids is None else tuple(job_ids), job_type, since, reason_like)
    )
    async with open_runtime() as runtime:
        told = await retry_chosen(runtime, tenant, wanted, limit=limit, dry_run=dry_run)
    get_run_logger().info("%s", told)
    return told
