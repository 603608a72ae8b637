"""The flow `jobs-purge`: what is over its time goes, and the run proves that it went and nothing else did."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from prefect import flow
from pydantic import Field

from durable_jobs.retention import Periods
from durable_jobs.retention.bullmq import PREFIX
from durable_jobs.retention.periods import EFFECTS, JOBS, REDIS
from durable_jobs.retention.running import TIME_BUDGET
from durable_jobs.tasks.purging import (
    get_purgeable_jobs,
    purge_db_jobs,
    purge_redis_jobs,
    told_purge,
    verify_retention,
)
from durable_jobs.tasks.runtimes import open_runtime


@flow(name="jobs-purge", persist_result=False)
async def jobs_purge(
    retention: timedelta = JOBS,
    effects_retention: timedelta = EFFECTS,
    redis_retention: timedelta = REDIS,
    redis_prefix: Annotated[str, Field(min_length=1)] = PREFIX,
    time_budget: Annotated[timedelta, Field(gt=timedelta(0))] = TIME_BUDGET,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Purge history that is over its time, and prove it.

    Jobs that ended longer ago than the retention go with all retries of their chain, once the last of these is
    due; what waits or runs never goes. Leaves the artifact `jobs-purge`. Fails when something due is left or
    something else went.

    Args:
        retention: How long jobs and their events are kept after the job's end, such as P30D.
        effects_retention: How long effects are kept, such as P90D; never less than the jobs of their chain.
        redis_retention: How long finished BullMQ jobs are kept in Redis, where one is configured.
        redis_prefix: BullMQ's prefix in that Redis.
        time_budget: When to stop; the next run goes on. This run then fails and says what is left.
        dry_run: Only say what would go.
    """
    async with (
        open_runtime() as runtime,
        told_purge(
            runtime,
            Periods(retention, effects_retention, redis_retention),
            time_budget=time_budget,
            dry_run=dry_run,
            redis_prefix=redis_prefix,
        ) as run,
    ):
        await get_purgeable_jobs(run)
        await purge_db_jobs(run)
        await purge_redis_jobs(run)
        await verify_retention(run)
    return run.figures()
