"""The steps of a dead-letter pass: what failed, how much of it, retries, and what is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from prefect import get_run_logger, task
from prefect.cache_policies import NO_CACHE

from durable_jobs.dead_letters.health import LATELY, LetterHealth, Thresholds, judge
from durable_jobs.dead_letters.retrying import Retrier, TenantRetries, counts_of
from durable_jobs.dead_letters.store import EVERY, LetterCount, LetterFilter
from durable_jobs.errors import DurableJobsError
from durable_jobs.jobs import Job
from durable_jobs.stores.protocols import NewEvent
from durable_jobs.tasks.runtimes import OpenRuntime

SHOWN = 100
CRON = "jobs-dlq-retry"


class PassFailed(DurableJobsError):
    """A dead-letter pass left something undone; the next one tries again."""


@task(cache_policy=NO_CACHE, persist_result=False)
async def get_failed_jobs(runtime: OpenRuntime, limit: int = SHOWN) -> list[Job]:
    """The oldest dead letters of all tenants, a fair part of each, without their payloads.

    Raises:
        PassFailed: no tenant is seen although there are jobs.
    """
    store = runtime.store
    if await store.has_rows() and not await store.tenants("any"):
        raise PassFailed(
            "no tenant is seen although job_history has rows: the role that enumerates tenants has lost its"
            " policy or its rights; run the migrations again (durable-jobs deploy)"
        )
    tenants = await store.tenants("failed")
    jobs: list[Job] = []
    for position, tenant in enumerate(tenants):
        share = max(1, (limit - len(jobs)) // (len(tenants) - position))
        jobs += await store.find_failed(tenant, limit=share)
        if len(jobs) >= limit:
            break
    return sorted(jobs, key=lambda job: (job.updated_at, job.job_id))


@task(cache_policy=NO_CACHE, persist_result=False)
async def get_dlq_stats(runtime: OpenRuntime, lately: timedelta = LATELY) -> dict[str, list[LetterCount]]:
    """The figures of each tenant: dead letters by type, and how executions ended lately."""
    store = runtime.store
    return {t: await store.count_letters(t, since=lately) for t in await store.tenants("any")}


@task(cache_policy=NO_CACHE, persist_result=False)
async def trigger_job_retry(
    runtime: OpenRuntime,
    per_tenant: int,
    tenants: Sequence[str] | None = None,
    wanted: LetterFilter = EVERY,
    by: str = CRON,
) -> list[TenantRetries]:
    """Retry what may be retried and give up what is at its limit, tenant by tenant.

    Raises:
        StoreUnavailable: the database does not answer; what was done stays done.
    """
    store = runtime.store
    retrier = Retrier(store, runtime.registry, by=by)
    names = await store.tenants("failed") if tenants is None else tenants
    return [await retrier.retry_tenant(name, limit=per_tenant, wanted=wanted) for name in names]


@task(cache_policy=NO_CACHE, persist_result=False)
async def emit_retry_event(runtime: OpenRuntime, done: Sequence[TenantRetries]) -> dict[str, Any]:
    """Record one event for the whole pass, however many jobs it touched; return its figures."""
    counts = counts_of(done)
    severity = "WARNING" if counts["tenantsWithFaults"] or counts["notRetryable"] else "INFO"
    await runtime.store.record_events([NewEvent("jobs.retry.completed", severity, counts)])
    get_run_logger().info(
        "%(retried)d retried, %(abandoned)d abandoned, %(notRetryable)d not retryable any more", counts
    )
    return counts


@task(cache_policy=NO_CACHE, persist_result=False)
async def evaluate_dlq_health(
    runtime: OpenRuntime, counts: dict[str, list[LetterCount]], thresholds: Thresholds
) -> LetterHealth:
    """Compare the figures with the thresholds, and record an event when they are passed."""
    health = judge((count for of_tenant in counts.values() for count in of_tenant), thresholds)
    if health.event is not None and health.severity is not None:
        payload = {
            "why": health.why,
            "deadLetters": health.letters,
            "atLimit": health.at_limit,
            "failedLastHour": health.failed,
            "endedLastHour": health.ended,
            "tenants": sum(any(c.letters for c in of_tenant) for of_tenant in counts.values()),
        }
        await runtime.store.record_events([NewEvent(health.event, health.severity, payload)])
    return health


def require_no_fault(done: Sequence[TenantRetries]) -> None:
    """Make a tenant's fault visible as the failure of the pass.

    Raises:
        PassFailed: naming the tenants and what went wrong.
    """
    faults = [f"tenant {one.tenant!r}: {one.fault}" for one in done if one.fault is not None]
    if faults:
        raise PassFailed(f"some dead letters could not be retried, all others were: {'; '.join(faults[:20])}")
