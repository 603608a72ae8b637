"""Keeps the failed flow runs of watched deployments as dead letters, each once.

The position of each deployment is kept in the database when a pass has seen everything up to it, and the next
pass begins well before it: what is read twice names the same job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterEndTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound

from durable_jobs.flow_runs.endings import End, EndedRun, end_of
from durable_jobs.flow_runs.keeping import BY, FailedRun, keep, run_key
from durable_jobs.flow_runs.store import Kept
from durable_jobs.tasks.run_endings import as_ended
from durable_jobs.tasks.run_limits import (
    close_never_started,
    close_unstoppable,
    end_hung,
    hung_runs,
    is_root,
)
from durable_jobs.tasks.runs import PAGE
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tasks.watched_deployments import Watched, read_watched
from durable_jobs.tenants import job_tenant_scope

BATCH = 100
_ENDED_BADLY = [StateType.FAILED, StateType.CRASHED, StateType.CANCELLED]


@dataclass
class Collected:
    """What a pass did."""

    watched: list[Watched] = field(default_factory=list)
    kept: list[tuple[UUID, FailedRun]] = field(default_factory=list)
    """The new dead letters, by job."""
    seen: int = 0
    never_started: int = 0
    hung: int = 0
    complete: bool = True
    """Whether everything was seen; else the next pass goes on."""

    def counts(self) -> dict[str, Any]:
        """Return the figures, for people and logs."""
        return {
            "deployments": len(self.watched),
            "failuresSeen": self.seen,
            "kept": len(self.kept),
            "neverStarted": self.never_started,
            "hung": self.hung,
            "complete": self.complete,
        }


@task(cache_policy=NO_CACHE, persist_result=False)
async def find_watched(tag: str, deployments: Sequence[str]) -> list[Watched]:
    """The deployments with the tag and the named ones, with their policies; none of ours."""
    async with get_client() as client:
        return await read_watched(client, deployments, tag)


@task(cache_policy=NO_CACHE, persist_result=False)
async def end_hopeless_runs(
    runtime: OpenRuntime, done: Collected, tenant: str, never_started_after: timedelta
) -> None:
    """Close what nobody starts; keep what hangs, and ask for its end."""
    async with get_client() as client:
        done.never_started = len(await close_never_started(client, done.watched, never_started_after))
        await close_unstoppable(client, done.watched)
        for run, why in await hung_runs(client, done.watched):
            done.hung += 1
            if is_root(run):
                end = EndedRun(run.id, "FAILED", "TimedOut", why, run.parameters)
                await _keep(client, runtime, done, tenant, [(run, end)])
            await end_hung(run, why)


@task(cache_policy=NO_CACHE, persist_result=False)
async def keep_failed_runs(
    runtime: OpenRuntime, done: Collected, tenant: str, *, window: timedelta, overlap: timedelta, limit: int
) -> None:
    """Register every failed run since the last pass as a dead letter, and tag it with its job."""
    begun = datetime.now(UTC)
    names = {one.deployment_id: f"flow-runs {tenant} {one.deployment_id}" for one in done.watched}
    known = await runtime.store.positions(list(names.values()))
    since = {i: known.get(name, begun - window) - overlap for i, name in names.items()}
    async with get_client() as client:
        async for page in _pages(client, since):
            failed = [(run, end) for run in page if _is_failure(run, end := as_ended(run))]
            for start in range(0, len(failed), BATCH):
                await _keep(client, runtime, done, tenant, failed[start : start + BATCH])
            if len(done.kept) >= limit:
                done.complete = False
                return
    await runtime.store.keep_positions(dict.fromkeys(names.values(), begun))


async def _pages(client: PrefectClient, since: Mapping[UUID, datetime]) -> AsyncIterator[list[FlowRun]]:
    """Return what ended badly, newest first: what ends meanwhile shifts the pages, and nothing is missed."""
    if not since:
        return
    wanted = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=list(since)),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_ENDED_BADLY)),
        end_time=FlowRunFilterEndTime(after_=min(since.values())),
    )
    offset = 0
    while page := await client.read_flow_runs(
        flow_run_filter=wanted, limit=PAGE, offset=offset, sort=FlowRunSort.END_TIME_DESC
    ):
        offset += len(page)
        yield page


def _is_failure(run: FlowRun, end: EndedRun) -> bool:
    return is_root(run) and run.deployment_id is not None and end_of(end) is End.FAILURE


async def _keep(
    client: PrefectClient,
    runtime: OpenRuntime,
    done: Collected,
    tenant: str,
    runs: Sequence[tuple[FlowRun, EndedRun]],
) -> None:
    watched = {one.deployment_id: one for one in done.watched}
    failed = [_failed(run, end, watched[run.deployment_id]) for run, end in runs if run.deployment_id]
    with job_tenant_scope(tenant):
        kept = await runtime.store.register_failed(
            [keep(runtime.registry, runtime.settings, one) for one in failed], by=BY
        )
    done.seen += len(kept)
    done.kept += [(job.job_id, one) for job, one in zip(kept, failed, strict=True) if job.created]
    for (run, _), job in zip(runs, kept, strict=True):
        await _tag(client, run, job)


def _failed(run: FlowRun, end: EndedRun, one: Watched) -> FailedRun:
    return FailedRun(
        end,
        run.run_count,
        one.name,
        one.policy,
        run.end_time or datetime.now(UTC),
        run.tags,
        run.job_variables,
    )


async def _tag(client: PrefectClient, run: FlowRun, job: Kept) -> None:
    """Name the job at its run, so that people find it from there."""
    tag = run_key(job.job_id)
    if tag in run.tags:
        return
    try:
        await client.update_flow_run(run.id, tags=[*run.tags, tag])
    except ObjectNotFound:
        # Deleted meanwhile; its job stands.
        return
