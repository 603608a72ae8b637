"""All checks of one target at once, within the time of one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import chain

from durable_jobs.redis_health.authentication import check_authentication
from durable_jobs.redis_health.connection import check_connection
from durable_jobs.redis_health.deadline import PROBE_BUDGET
from durable_jobs.redis_health.encryption import check_encryption
from durable_jobs.redis_health.memory import check_memory
from durable_jobs.redis_health.results import CheckResult, HealthReport, in_order
from durable_jobs.redis_health.target import HealthLimits, RedisTarget


async def examine(
    target: RedisTarget, *, limits: HealthLimits | None = None, budget: timedelta = PROBE_BUDGET
) -> HealthReport:
    """Look at everything about a target; ends within the budget whatever the server does."""
    found = await asyncio.gather(
        check_connection(target, limits=limits, budget=budget),
        check_encryption(target, limits=limits, budget=budget),
        check_authentication(target, budget=budget),
        check_memory(target, limits=limits, budget=budget),
    )
    return make_report(target, chain.from_iterable(found))


def make_report(target: RedisTarget, results: Iterable[CheckResult]) -> HealthReport:
    """Put results together, in the order in which people read them."""
    return HealthReport(
        target=target.name,
        endpoint=target.address.endpoint,
        environment=target.environment,
        checked_at=datetime.now(UTC),
        results=in_order(results),
    )
