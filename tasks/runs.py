"""Flow runs of our own deployments: started once for each reason, read, and closed when they are dead."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.filters import (
    DeploymentFilter,
    DeploymentFilterId,
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterExpectedStartTime,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Crashed

ON_ITS_WAY = (StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING)
STARTING = timedelta(minutes=1)
PAGE = 200


async def start_run(
    deployment: str, parameters: Mapping[str, Any], idempotency_key: str | None = None
) -> FlowRun:
    """Start a run of a deployment, or return the one that this key has already started.

    Raises:
        ObjectNotFound: there is no such deployment.
    """
    async with get_client() as client:
        found = await client.read_deployment_by_name(deployment)
        return await client.create_flow_run_from_deployment(
            found.id, parameters=dict(parameters), idempotency_key=idempotency_key
        )


async def read_run(flow_run_id: UUID) -> FlowRun | None:
    """Return a flow run, or None when it is gone."""
    async with get_client() as client:
        try:
            return await client.read_flow_run(flow_run_id)
        except ObjectNotFound:
            return None


def is_live(run: FlowRun | None) -> bool:
    """Tell whether a run may still do what it was started for."""
    return run is not None and run.state is not None and not run.state.is_final()


async def is_starting(deployment: str) -> bool:
    """Tell whether a run of the deployment is due or has begun within the last minute."""
    async with get_client() as client:
        found = await client.read_deployment_by_name(deployment)
        runs = await client.read_flow_runs(
            deployment_filter=DeploymentFilter(id=DeploymentFilterId(any_=[found.id])),
            flow_run_filter=FlowRunFilter(
                state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(ON_ITS_WAY)))
            ),
            limit=200,
        )
    return any(_starts_now(run) for run in runs)


def _starts_now(run: FlowRun) -> bool:
    now = datetime.now(UTC)
    if run.state_type is StateType.SCHEDULED:
        due = run.next_scheduled_start_time or run.expected_start_time
        return due is not None and due <= now + timedelta(seconds=5)
    began = run.start_time or run.expected_start_time or now
    return now - began < STARTING


async def find_runs(
    client: PrefectClient,
    deployment_ids: Collection[UUID],
    types: Sequence[StateType],
    before: datetime | None = None,
) -> list[FlowRun]:
    """Return all runs of deployments in states of these types, due before a time if one is given."""
    criteria = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=list(deployment_ids)),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types))),
        expected_start_time=FlowRunFilterExpectedStartTime(before_=before) if before else None,
    )
    found: list[FlowRun] = []
    while page := await client.read_flow_runs(flow_run_filter=criteria, limit=PAGE, offset=len(found)):
        found += page
    return found


async def close_run(flow_run_id: UUID, message: str) -> bool:
    """Set an unfinished run to Crashed; False when it is finished or gone."""
    async with get_client() as client:
        run = await _unfinished(client, flow_run_id)
        if run is None:
            return False
        await client.set_flow_run_state(flow_run_id, Crashed(message=message), force=True)
        return True


async def kill_run(flow_run_id: UUID) -> bool:
    """Have the process of a run ended by its runner; False when it is finished or gone."""
    async with get_client() as client:
        run = await _unfinished(client, flow_run_id)
        if run is None or run.state_type is StateType.CANCELLING:
            return False
        await client.set_flow_run_state(flow_run_id, Cancelling(), force=True)
        return True


async def _unfinished(client: PrefectClient, flow_run_id: UUID) -> FlowRun | None:
    try:
        run = await client.read_flow_run(flow_run_id)
    except ObjectNotFound:
        return None
    return run if is_live(run) else None
