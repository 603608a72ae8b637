"""What is over its time, and having it go: for the caller's tenant, as the nightly purge does for all."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from durable_jobs.api.access import Access, AppAccess
from durable_jobs.api.answers import answer_json
from durable_jobs.api.callers import Operator, Reader
from durable_jobs.api.models import Purgeable, Purged
from durable_jobs.api.problems import Refusal, retry_after
from durable_jobs.api.questions import PurgeableQuestion, PurgeQuestion
from durable_jobs.redis_health.target import target_of_settings
from durable_jobs.retention import Budget, Periods, look, purge_redis, purge_run
from durable_jobs.retention.figures import look_figures

router = APIRouter(tags=["operation"])

LOOK_BOUND = timedelta(seconds=60)
PURGE_BOUND = timedelta(seconds=120)
"""How long a request may take; what a purge did not reach, the next one does."""
_BUDGET = timedelta(seconds=60)


@router.get("/jobs/purgeable", response_model=Purgeable)
async def purgeable(
    question: Annotated[PurgeableQuestion, Query()], caller: Reader, access: AppAccess
) -> Response:
    """Tell what a purge of the caller's tenant would take now, by type and state, and how much room that is."""
    store = await access.store()
    limits = await _periods(question).limits(store, access.settings.min_retention)
    return answer_json(look_figures(await look(store, limits, tenants=[caller.tenant])))


@router.delete("/jobs/purge", response_model=Purged)
async def purge(question: Annotated[PurgeQuestion, Query()], caller: Operator, access: AppAccess) -> Response:
    """Purge what is over its time, and prove it: jobs of the caller's tenant, or BullMQ's finished jobs in Redis.

    Chains of retries go as a whole; jobs that wait or run never go. 409 when another purge is at work, or when
    the purge cannot be proved.
    """
    work = (
        _purge_redis(question, access)
        if question.target == "redis"
        else _purge_db(question, caller.tenant, access)
    )
    return answer_json({"target": question.target, **await work})


async def _purge_db(question: PurgeQuestion, tenant: str, access: Access) -> dict[str, Any]:
    store = await access.store()
    async with purge_run(
        store,
        access.settings,
        _periods(question),
        time_budget=_BUDGET,
        dry_run=question.dry_run,
        tenants=[tenant],
    ) as run:
        await run.look()
        await run.purge_db()
        await run.verify()
    return run.figures()


async def _purge_redis(question: PurgeQuestion, access: Access) -> dict[str, Any]:
    period = question.older_than or Periods().redis
    Periods(redis=period).require_over(access.settings.min_retention)
    found = await purge_redis(
        target_of_settings(access.settings), period, Budget(_BUDGET), dry_run=question.dry_run
    )
    if found.endpoint is None:
        raise Refusal(
            404, "no-redis", "no Redis is configured, so there is nothing to purge (DURABLE_JOBS_REDIS_URL)"
        )
    if found.fault is not None:
        raise Refusal(503, "redis-unavailable", found.fault, headers=retry_after(5))
    return {"dryRun": question.dry_run, "redis": found.gone, "left": found.left}


def _periods(question: PurgeableQuestion) -> Periods:
    return Periods() if question.older_than is None else Periods(jobs=question.older_than)
