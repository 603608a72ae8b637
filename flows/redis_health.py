"""The flow `redis-health`: look at every Redis, show how it is, say what changed."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any

from prefect import flow

from durable_jobs.redis_health import HealthLimits, HealthReport, RedisTarget
from durable_jobs.redis_health.examine import make_report
from durable_jobs.tasks.redis_checks import (
    check_memory_usage,
    check_redis_connection,
    emit_health_event,
    verify_auth_required,
    verify_tls_enabled,
)
from durable_jobs.tasks.redis_reporting import find_redis_targets, leave_health_artifact

DEFAULT_LIMITS = HealthLimits()


async def look_at(target: RedisTarget, limits: HealthLimits) -> HealthReport:
    """Ask all four questions at once, so that a dead server costs two seconds and not eight."""
    found = await asyncio.gather(
        check_redis_connection(target, limits),
        verify_tls_enabled(target, limits),
        verify_auth_required(target),
        check_memory_usage(target, limits),
    )
    return make_report(target, chain.from_iterable(found))


@flow(name="redis-health", persist_result=False)
async def redis_health(
    targets: list[str] | None = None, limits: HealthLimits = DEFAULT_LIMITS
) -> list[dict[str, Any]]:
    """Look at each Redis: is it there, closed, encrypted, fast, roomy, writable and durable?

    Leaves the artifact `redis-health` and records an event for each change. Without any Redis it says so.

    Args:
        targets: Names of redis-target blocks; without any, the Redis of DURABLE_JOBS_REDIS_URL.
        limits: From where on a figure is worth a warning.
    """
    watched = await find_redis_targets(targets or [])
    reports = await asyncio.gather(*(look_at(target, limits) for target in watched))
    await leave_health_artifact(reports)
    for report in reports:
        await emit_health_event(report)
    return [report.as_json() for report in reports]
