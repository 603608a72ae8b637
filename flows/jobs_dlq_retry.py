"""Retries what failed, as its policy says, or gives it up with an alert."""

from __future__ import annotations

from typing import Annotated, Any

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from durable_jobs.dead_letters.health import Thresholds
from durable_jobs.dead_letters.retrying import PER_TENANT
from durable_jobs.flow_runs.policy import TAG
from durable_jobs.tasks.collecting import find_watched
from durable_jobs.tasks.dead_letters import (
    emit_retry_event,
    evaluate_dlq_health,
    get_dlq_stats,
    get_failed_jobs,
    require_no_fault,
    trigger_job_retry,
)
from durable_jobs.tasks.letters_shown import leave_letters_artifact
from durable_jobs.tasks.runtimes import open_runtime

DEFAULT_THRESHOLDS = Thresholds()


@flow(name="jobs-dlq-retry", persist_result=False)
async def jobs_dlq_retry(
    per_tenant: Annotated[int, Field(ge=1, strict=True)] = PER_TENANT,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> dict[str, Any] | None:
    """Retry dead letters of all tenants.

    A failed job gets one new job with the same request; at its limit it is ABANDONED, with an alert. What
    cannot be executed any more is marked as not retryable, with the reason.

    Args:
        per_tenant: Most retries for each tenant in one pass.
        thresholds: From how many dead letters, or failures of the last hour, on an event warns.
    """
    async with open_runtime() as runtime, runtime.store.only_one("dead-letters") as alone:
        if not alone:
            get_run_logger().info("Another pass is under way")
            return None
        letters = await get_failed_jobs(runtime)
        stats = await get_dlq_stats(runtime)
        done = await trigger_job_retry(runtime, per_tenant)
        counts = await emit_retry_event(runtime, done)
        health = await evaluate_dlq_health(runtime, stats, thresholds)
        watched = await find_watched(TAG, [])
        await leave_letters_artifact(letters, stats, done, health, watched)
        require_no_fault(done)
    return counts
