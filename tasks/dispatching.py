"""Starts a flow run for each job that runs alone: those of isolated queues, and suspects.

The key of a run is the job's id and its dispatch count, so that a call whose answer was lost starts
nothing twice. Which record wins is job_history: a run that finds its job not waiting ends at once.
"""

from __future__ import annotations

from collections import Counter

import httpx
import structlog
from prefect.exceptions import ObjectNotFound

from durable_jobs.stores.protocols import LoneJob
from durable_jobs.tasks.runs import is_live, read_run, start_run
from durable_jobs.tasks.runtimes import OpenRuntime

logger = structlog.get_logger(__name__)

ISOLATED = "execute-job/isolated"
SUSPECTS_AT_ONCE = 5


async def dispatch_lone_jobs(runtime: OpenRuntime) -> int:
    """Start flow runs for jobs that wait for one, within the bounds of their queues; return how many."""
    # Two at once could count the same free places.
    async with runtime.store.only_one("dispatch") as alone:
        return await _dispatch_all(runtime) if alone else 0


async def _dispatch_all(runtime: OpenRuntime) -> int:
    store, settings = runtime.store, runtime.settings
    isolated = {q.name: q for q in runtime.registry.queues.values() if q.isolation == "flow_run"}
    limit = max([SUSPECTS_AT_ONCE, *(q.concurrency for q in isolated.values())])
    waiting = await store.waiting_alone(list(isolated), stale_after=settings.pending_stale_after, limit=limit)
    if not waiting:
        return 0
    under_way = Counter(await store.dispatched(list(isolated)))
    started = 0
    for job in waiting:
        bound = isolated[job.queue].concurrency if job.queue in isolated else None
        first = job.dispatch_count == 0
        if bound is not None and first and under_way[job.queue] >= bound:
            continue
        if await _dispatch(runtime, job):
            started += 1
            under_way[job.queue] += first
    return started


async def _dispatch(runtime: OpenRuntime, job: LoneJob) -> bool:
    if job.flow_run_id is not None and is_live(await read_run(job.flow_run_id)):
        return False
    run = await start_run(
        ISOLATED,
        {"job_id": str(job.job_id), "tenant": job.tenant_id},
        idempotency_key=f"{job.job_id}:{job.dispatch_count + 1}",
    )
    # A run that ended without touching its job is returned again for its key: count on, and try anew.
    marked = await runtime.store.mark_dispatched(job, run.id)
    if marked and not is_live(run):
        return await _dispatch(runtime, job._replace(dispatch_count=job.dispatch_count + 1, flow_run_id=None))
    return marked


async def dispatch_if_prefect_answers(runtime: OpenRuntime) -> int:
    """Dispatch; when Prefect is away the jobs wait and the next pass tries again."""
    try:
        return await dispatch_lone_jobs(runtime)
    except (httpx.HTTPError, ObjectNotFound) as error:
        logger.warning("jobs that run alone wait for Prefect", error=str(error))
        return 0
