"""What a look found is compared with what was said last, and what changed becomes an event.

Also the other half of the watch: whoever uses Redis and loses it has it looked at and said at once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Protocol

import structlog

from durable_jobs.errors import DurableJobsError
from durable_jobs.redis_health.connection import check_connection
from durable_jobs.redis_health.examine import make_report
from durable_jobs.redis_health.results import CheckName, HealthReport
from durable_jobs.redis_health.target import RedisTarget
from durable_jobs.redis_health.watch import CheckState, Step, advance
from durable_jobs.stores.protocols import NewEvent

logger = structlog.get_logger(__name__)


class HealthStates(Protocol):
    """The memory of the checks: what was said last of each target."""

    async def settle(
        self,
        target: str,
        decide: Callable[[Mapping[CheckName, CheckState], datetime], Step],
        *,
        now: datetime | None = None,
    ) -> tuple[NewEvent, ...]:
        """Keep the states and record the events that `decide` returns, together or not at all."""
        ...


async def announce(
    report: HealthReport, states: HealthStates, *, now: datetime | None = None
) -> tuple[NewEvent, ...]:
    """Record an event for each change since the last look, and return these events.

    Raises:
        StoreUnavailable: nothing was remembered and nothing said; the next look says it.
    """
    return await states.settle(report.target, lambda before, at: advance(before, report, at), now=now)


async def report_loss(target: RedisTarget, states: HealthStates) -> tuple[NewEvent, ...]:
    """Look at a Redis that was just lost, and say at once what is wrong with it.

    A connection that only broke once (an idle one that the server closed, say) is no loss.

    Raises:
        StoreUnavailable: nothing was said; the next look on schedule says it.
    """
    return await announce(make_report(target, await check_connection(target)), states)


@asynccontextmanager
async def reporting_loss(target: RedisTarget, states: HealthStates) -> AsyncIterator[None]:
    """Use Redis inside the block: when it is lost there, the event is recorded before the error goes on."""
    from redis.exceptions import ConnectionError as Lost  # the client loads slowly and only its users need it
    from redis.exceptions import TimeoutError as Late

    try:
        yield
    except (Lost, Late, OSError):
        try:
            await report_loss(target, states)
        except DurableJobsError as error:
            # The block's own error must reach its caller; this one is said on schedule.
            logger.warning("the loss of Redis could not be recorded", target=target.name, error=str(error))
        raise
