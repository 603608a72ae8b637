"""The checks of a Redis as Prefect tasks, one for each question that people ask.

Targets hold passwords, so no task caches or persists what it is given.
"""

from __future__ import annotations

from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from durable_jobs.redis_health import CheckResult, HealthLimits, HealthReport, RedisTarget, announce
from durable_jobs.redis_health.authentication import check_authentication
from durable_jobs.redis_health.connection import check_connection
from durable_jobs.redis_health.encryption import check_encryption
from durable_jobs.redis_health.memory import check_memory
from durable_jobs.stores.postgres.health import PgHealthStates
from durable_jobs.tasks.runtimes import load_settings


@task(cache_policy=NO_CACHE, persist_result=False)
async def check_redis_connection(target: RedisTarget, limits: HealthLimits) -> list[CheckResult]:
    """Connect as the target's user: connection, latency, role, replication; within two seconds."""
    return await check_connection(target, limits=limits)


@task(cache_policy=NO_CACHE, persist_result=False)
async def verify_tls_enabled(target: RedisTarget, limits: HealthLimits) -> list[CheckResult]:
    """Try a plaintext connection, judge the certificate: tls, certificate; within two seconds."""
    return await check_encryption(target, limits=limits)


@task(cache_policy=NO_CACHE, persist_result=False)
async def verify_auth_required(target: RedisTarget) -> list[CheckResult]:
    """Try commands without a password: auth; within two seconds."""
    return await check_authentication(target)


@task(cache_policy=NO_CACHE, persist_result=False)
async def check_memory_usage(target: RedisTarget, limits: HealthLimits) -> list[CheckResult]:
    """Read the figures, try a write: memory, eviction, writes, persistence; within two seconds."""
    return await check_memory(target, limits=limits)


@task(cache_policy=NO_CACHE, persist_result=False)
async def emit_health_event(report: HealthReport) -> Sequence[str]:
    """Record an event for each change since the last look; return their names.

    Raises:
        StoreUnavailable: nothing was recorded; the next look says it.
    """
    async with PgHealthStates.from_settings(await load_settings()) as states:
        return [event.event for event in await announce(report, states)]
