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
    job_ids: list[UUID] | None = None,
    job_type: str | None = None,
    since: datetime | None = None,
    reason_like: str | None = None,
    tenant: str = DEFAULT_TENANT,
    limit: Annotated[int, Field(ge=1, strict=True)] = 1_000,
    dry_run: Annotated[bool, Field(strict=True)] = True,
) -> dict[str, Any]:
    """Retry failed jobs of one tenant.

    At least one of the first four says which; without the tick at dry run they are retried.

    Args:
        job_ids: Only these jobs.
        job_type: Only this job type.
        since: Only what failed since then, with its time zone.
        reason_like: Only what failed with this in its reason; % stands for any text.
        tenant: In whose name.
        limit: Most retries.
        dry_run: Only show which jobs fit.
    """
    wanted = require_choice(
        LetterFilter(None if job_ids is None else tuple(job_ids), job_type, since, reason_like)
    )
    async with open_runtime() as runtime:
        told = await retry_chosen(runtime, tenant, wanted, limit=limit, dry_run=dry_run)
    get_run_logger().info("%s", told)
    return told
