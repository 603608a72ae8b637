"""Flow runs that nobody will end, and cron runs that nobody started in time.

Prefect itself never ends a run whose process died together with its runner, and starts every missed run at once
when a worker is back. A run is judged by what the store knows: a shift and an isolated job have an executor that
beats, and of reconcile passes only one holds the lock. A wrong judgement harms nothing: Prefect's record is no
lock, and a living run ends as it would have.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.runtime import flow_run

from durable_jobs.tasks.runs import close_run, find_runs
from durable_jobs.tasks.runtimes import OpenRuntime

TAG = "durable-jobs"
UNFINISHED = (StateType.RUNNING, StateType.PENDING, StateType.CANCELLING)
LOST = "The process of this run is gone; found by jobs-reconcile."
EXECUTING, RECONCILING = ("execute_jobs", "execute_job"), ("jobs_reconcile",)
# A worker may have to fetch an image first.
LONGEST_START = timedelta(minutes=10)
# No other flow of ours takes longer: a purge has a time budget of half an hour.
LONGEST_RUN = timedelta(hours=2)
MISSED_BY = timedelta(minutes=2)


class Clearing(NamedTuple):
    """What was cleared up."""

    lost: int = 0
    missed: int = 0


async def clear_up_runs(runtime: OpenRuntime) -> Clearing:
    """Set lost runs of our deployments to Crashed and remove missed cron runs that a later one makes up for."""
    async with get_client() as client:
        flows = await _our_flows(client)
        lost = await _surely_lost(client, runtime, flows)
        missed = await drop_missed_runs(client, flows, late_by=MISSED_BY)
    return Clearing(sum([await close_run(run, LOST) for run in lost]), missed)


async def drop_missed_runs(
    client: PrefectClient, deployment_ids: Collection[UUID], *, late_by: timedelta = timedelta(0)
) -> int:
    """Delete the cron runs that nobody started in time, all but the latest of each deployment."""
    late = await find_runs(client, deployment_ids, [StateType.SCHEDULED], before=datetime.now(UTC) - late_by)
    by_deployment: dict[UUID | None, list[FlowRun]] = defaultdict(list)
    for run in late:
        if run.auto_scheduled:
            by_deployment[run.deployment_id].append(run)
    missed = [run for runs in by_deployment.values() for run in sorted(runs, key=_due)[:-1]]
    for run in missed:
        await client.delete_flow_run(run.id)
    return len(missed)


def _due(run: FlowRun) -> datetime:
    return run.expected_start_time or datetime.now(UTC)


async def _our_flows(client: PrefectClient) -> dict[UUID, str]:
    """Return the name of the flow function of each of our deployments."""
    ours = DeploymentFilter(tags=DeploymentFilterTags(all_=[TAG]))
    found = await client.read_deployments(deployment_filter=ours, limit=200)
    return {one.id: (one.entrypoint or "").rpartition(".")[2] for one in found}


async def _surely_lost(client: PrefectClient, runtime: OpenRuntime, flows: dict[UUID, str]) -> list[UUID]:
    """Look twice, two heartbeats apart: a run that is just ending has no executor any more."""
    first = await _lost(client, runtime, flows)
    if not first:
        return []
    await asyncio.sleep(2 * runtime.settings.heartbeat_interval.total_seconds())
    again = await _lost(client, runtime, flows)
    return [run for run in first if run in again]


async def _lost(client: PrefectClient, runtime: OpenRuntime, flows: dict[UUID, str]) -> list[UUID]:
    runs = await find_runs(client, flows, UNFINISHED)
    alive = {view.executor.flow_run_id for view in await runtime.store.executors()}
    alive |= {UUID(flow_run.id)} if flow_run.id else set()
    silence = 2 * runtime.settings.running_stale_after
    return [
        run.id
        for run in runs
        if run.id not in alive and is_lost(run, flows.get(run.deployment_id or run.id, ""), silence)
    ]


def is_lost(run: FlowRun, flow: str, silence: timedelta) -> bool:
    """Tell whether a run that no executor stands for is over, by how long it has been in its state.

    Args:
        run: an unfinished run.
        flow: the name of its flow function.
        silence: for how long a shift, an isolated job or a reconcile pass may be unknown to the store.
    """
    since = run.state.timestamp if run.state is not None else run.created
    age = datetime.now(UTC) - (since or datetime.now(UTC))
    if run.state_type is not StateType.RUNNING:
        return age > LONGEST_START
    return age > (silence if flow in EXECUTING + RECONCILING else LONGEST_RUN)
