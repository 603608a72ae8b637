"""What an outage leaves in Prefect: flow runs of dead processes, and a backlog of missed crons.

Prefect itself never ends a Running flow run whose process died, and starts every missed run at once when a
runner is back. Called before a runner starts, when no process of the served deployments lives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed

PAGE = 200
INTERRUPTED = "The machine or `durable-jobs up` was stopped while this run was going on."


async def close_dead_runs(client: PrefectClient, deployment_ids: Collection[UUID]) -> int:
    """Set the flow runs that a killed process left unfinished to Crashed; return how many."""
    unfinished = [StateType.RUNNING, StateType.PENDING, StateType.CANCELLING]
    dead = await _flow_runs(client, deployment_ids, unfinished)
    for run in dead:
        await client.set_flow_run_state(run.id, Crashed(message=INTERRUPTED), force=True)
    return len(dead)


async def drop_missed_runs(client: PrefectClient, deployment_ids: Collection[UUID]) -> int:
    """Delete the cron runs that nobody started in time, all but the latest of each deployment."""
    late = await _flow_runs(client, deployment_ids, [StateType.SCHEDULED], before=datetime.now(UTC))
    by_deployment: dict[UUID | None, list[FlowRun]] = defaultdict(list)
    for run in late:
        if run.auto_scheduled:
            by_deployment[run.deployment_id].append(run)
    missed = [run for runs in by_deployment.values() for run in sorted(runs, key=_start_time)[:-1]]
    for run in missed:
        await client.delete_flow_run(run.id)
    return len(missed)


def _start_time(run: FlowRun) -> datetime:
    return run.expected_start_time or datetime.now(UTC)


async def _flow_runs(
    client: PrefectClient,
    deployment_ids: Collection[UUID],
    types: list[StateType],
    before: datetime | None = None,
) -> list[FlowRun]:
    criteria = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=list(deployment_ids)),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=types)),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=before) if before else None,
    )
    found: list[FlowRun] = []
    while page := await client.read_flow_runs(flow_run_filter=criteria, limit=PAGE, offset=len(found)):
        found += page
    return found
