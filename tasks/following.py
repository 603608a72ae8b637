"""Executes a PREFECT_FLOW_RUN job: starts the one run that the job may have, and follows it to its end.

The run's idempotency key is the job's id, so whoever executes the job again (the next shift, or one after a
crash) finds the run instead of starting a second one. An earlier run of the chain that somebody started again
in Prefect comes first: if it succeeds there is nothing left to do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import httpx
import structlog
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

from durable_jobs.context import JobContext
from durable_jobs.errors import CalledOff, NotRetryable, StoreUnavailable
from durable_jobs.flow_runs.endings import End, end_of, reason_for
from durable_jobs.flow_runs.keeping import run_key
from durable_jobs.flow_runs.payload import FollowedRun, RunDeployment
from durable_jobs.runtime import current_runtime
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tasks.asking import until_answered
from durable_jobs.tasks.run_calling_off import call_off
from durable_jobs.tasks.run_endings import read_end, read_result
from durable_jobs.tasks.run_watching import watcher
from durable_jobs.tasks.runs import PAGE, is_live
from durable_jobs.tasks.watched_deployments import read_watched
from durable_jobs.texts import Skipped

logger = structlog.get_logger(__name__)

T = TypeVar("T")

CALL_OFF_WITHIN = timedelta(seconds=4)
STORE_PAUSE = timedelta(seconds=2)


class FlowRunFailed(Exception):
    """The flow run that a job stands for did not end well."""


async def follow(request: RunDeployment, context: JobContext) -> FollowedRun | Skipped:
    """Start or find the job's run, and return how it ended.

    Raises:
        NotRetryable: it can never be started, or its deployment's policy says so.
        CalledOff: a person cancelled it.
        FlowRunFailed: it did not end well.
    """
    job = await _with_store(lambda store: store.get(context.job_id))
    if job.flow_run_id is not None:
        # Begun by another shift: one look at many runs finds how it goes, nothing is asked for this one alone.
        return await _follow_to_its_end(request, context, job.flow_run_id)
    done = await _end_of_earlier(request, context)
    if done is not None:
        return done
    run = await _start(request, context)
    await _with_store(lambda store: store.link_flow_run(context.job_id, run.id))
    return await _follow_to_its_end(request, context, run.id)


async def _end_of_earlier(request: RunDeployment, context: JobContext) -> Skipped | None:
    """Wait for earlier runs of the chain that go on again; tell whether one of them succeeded meanwhile."""
    for run in await _earlier_runs(request, context):
        again = is_live(run)
        ended = await watcher().end_of(run.id) if again else run
        if ended is None:
            continue
        end = await read_end(ended)
        if end_of(end) is End.WELL:
            return Skipped(f"flow run {run.id} succeeded when it was run again in Prefect")
        if again and end_of(end) is End.CALLED_OFF:
            raise CalledOff(f"flow run {run.id} was run again and cancelled in Prefect")
    return None


async def _earlier_runs(request: RunDeployment, context: JobContext) -> list[FlowRun]:
    ids = {request.flow_run_id} if request.flow_run_id is not None else set()
    if context.retry_count or ids:
        chain = await _with_store(lambda store: store.chain(context.job_id))
        ids |= {job.flow_run_id for job in chain if job.flow_run_id and job.job_id != context.job_id}
    if not ids:
        return []
    wanted = FlowRunFilter(id=FlowRunFilterId(any_=sorted(ids)[:PAGE]))
    return await until_answered(lambda client: client.read_flow_runs(flow_run_filter=wanted, limit=PAGE))


async def _start(request: RunDeployment, context: JobContext) -> FlowRun:
    key = run_key(context.job_id)

    async def start(client: PrefectClient) -> FlowRun:
        deployment = await client.read_deployment_by_name(request.deployment)
        return await client.create_flow_run_from_deployment(
            deployment.id,
            parameters=request.parameters,
            tags=[*request.tags, key],
            job_variables=request.job_variables,
            idempotency_key=key,
        )

    try:
        return await until_answered(start)
    except ObjectNotFound as error:
        raise NotRetryable(
            f"deployment {request.deployment!r} does not exist: deploy it under this name and resubmit the job"
        ) from error
    except PrefectHTTPStatusError as error:
        raise NotRetryable(
            f"Prefect does not take a run of {request.deployment!r} ({error.response.status_code}):"
            f" {_refusal(error)}; adapt the deployment and resubmit the job, or submit it anew"
        ) from None


def _refusal(error: PrefectHTTPStatusError) -> str:
    """Return which parameters Prefect refused; its own words quote their values."""
    if error.response.status_code == httpx.codes.NOT_FOUND:
        return "the deployment was deleted"
    fields = sorted(set(re.findall(r"field '([^']{1,100})'", error.response.text)))
    which = f" ({', '.join(fields)})" if fields else ""
    return f"the parameters{which} do not fit its parameter schema, or the job variables its work pool"


async def _follow_to_its_end(request: RunDeployment, context: JobContext, run_id: UUID) -> FollowedRun:
    try:
        ended = await watcher().end_of(run_id)
    except asyncio.CancelledError:
        if context.stopped_by in ("cancel", "timeout"):
            await _call_off(run_id, f"job {context.job_id} was cancelled")
        raise
    if ended is None:
        raise NotRetryable(f"flow run {run_id} was deleted in Prefect before it ended")
    end = await read_end(ended)
    match end_of(end):
        case End.WELL:
            return FollowedRun(
                flow_run_id=run_id, state=end.state_name, message=end.message, result=await read_result(ended)
            )
        case End.CALLED_OFF:
            raise CalledOff(f"flow run {run_id} was cancelled in Prefect")
        case _:
            reason = f"{request.deployment}: {reason_for(end)}"
            if await _is_final(request):
                raise NotRetryable(reason)
            raise FlowRunFailed(reason)


async def _is_final(request: RunDeployment) -> bool:
    """Tell whether the deployment's policy forbids a retry."""
    watched = await until_answered(lambda client: read_watched(client, [request.deployment]))
    return any(not one.policy.retryable for one in watched)


async def _call_off(flow_run_id: UUID, why: str) -> None:
    """Cancel the run if Prefect answers soon; else collect-flow-runs does it, which looks for such runs."""
    try:
        async with asyncio.timeout(CALL_OFF_WITHIN.total_seconds()):
            await call_off(flow_run_id, why)
    except (httpx.HTTPError, OSError, TimeoutError) as error:
        logger.warning("a flow run is not cancelled yet", flow_run_id=str(flow_run_id), error=repr(error))


async def _with_store(ask: Callable[[PgJobsStore], Awaitable[T]]) -> T:
    """Ask the store for as long as it does not answer; the shift decides what an outage means."""
    while True:
        try:
            return await ask(await current_runtime().store())
        except StoreUnavailable as error:
            logger.warning("a flow run waits for the database", error=str(error))
            await asyncio.sleep(STORE_PAUSE.total_seconds())
