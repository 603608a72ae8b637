"""Ends flow runs that will not end well by themselves: never started, or hung beyond their deployment's timeout.

A run that nobody started is closed before it is kept, so that a worker that comes back does not start it
beside its retry. A hung run is kept first and asked to end then; its retry waits until it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterDeploymentId,
    FlowRunFilterNextScheduledStartTime,
    FlowRunFilterState,
    FlowRunFilterStateName,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import FlowRun, StateType

from durable_jobs.configuration import iso
from durable_jobs.flow_runs.endings import OURS
from durable_jobs.flow_runs.keeping import is_a_jobs_run
from durable_jobs.tasks.run_calling_off import call_off, close
from durable_jobs.tasks.runs import PAGE
from durable_jobs.tasks.watched_deployments import Watched

WAITING_FOR_A_WORKER = ["Scheduled", "Late"]
DOES_NOT_STOP_AFTER = timedelta(minutes=5)
_GOING_ON = [StateType.RUNNING, StateType.PENDING]


async def close_never_started(
    client: PrefectClient, watched: Sequence[Watched], after: timedelta
) -> list[FlowRun]:
    """Set runs to Crashed that are overdue by so much and whose deployment nobody polls for; return them."""
    ids = [
        one.deployment_id
        for one in watched
        if not one.polled and not await _held_back(client, one.deployment_id)
    ]
    if not ids:
        return []
    overdue = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=ids),
        state=FlowRunFilterState(name=FlowRunFilterStateName(any_=WAITING_FOR_A_WORKER)),
        next_scheduled_start_time=FlowRunFilterNextScheduledStartTime(before_=datetime.now(UTC) - after),
    )
    closed = []
    for run in await _all(client, overdue):
        # A run of a job is waited for, however late it is.
        if is_root(run):
            due = run.next_scheduled_start_time or run.expected_start_time
            await close(run.id, f"never started: due at {due:%Y-%m-%d %H:%M:%S %Z}, and nobody polls for it")
            closed.append(run)
    return closed


async def hung_runs(client: PrefectClient, watched: Sequence[Watched]) -> list[tuple[FlowRun, str]]:
    """Return runs that go on for longer than their deployment's timeout, and why each is at fault."""
    limits = {one.deployment_id: one.policy.timeout for one in watched if one.policy.timeout is not None}
    if not limits:
        return []
    wanted = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=list(limits)),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_GOING_ON)),
    )
    return [
        (run, f"timed out after {iso(limit)}")
        for run in await _all(client, wanted)
        if (limit := _limit_passed(run, limits)) is not None
    ]


async def end_hung(run: FlowRun, why: str) -> None:
    """Ask for the end of a hung run."""
    await call_off(run.id, why)


async def close_unstoppable(client: PrefectClient, watched: Sequence[Watched]) -> int:
    """Close runs that we asked to end and that nobody ends: their runner is gone; return how many."""
    if not watched:
        return 0
    wanted = FlowRunFilter(
        deployment_id=FlowRunFilterDeploymentId(any_=[one.deployment_id for one in watched]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.CANCELLING])),
    )
    closed = 0
    for run in await _all(client, wanted):
        said = run.state.message or "" if run.state else ""
        if said.startswith(OURS) and _age(run) > DOES_NOT_STOP_AFTER:
            await close(run.id, f"{said.removeprefix(OURS)}; nobody ended it, so its runner is gone")
            closed += 1
    return closed


def is_root(run: FlowRun) -> bool:
    """Tell whether a run's failure is its own: not a job's, and not a part of another flow's run."""
    return not is_a_jobs_run(run.idempotency_key) and run.parent_task_run_id is None


def _limit_passed(run: FlowRun, limits: Mapping[UUID, timedelta]) -> timedelta | None:
    limit = limits.get(run.deployment_id) if run.deployment_id else None
    began = run.start_time if run.state_type is StateType.RUNNING else None
    elapsed = datetime.now(UTC) - began if began else _age(run)
    return limit if limit is not None and elapsed > limit else None


def _age(run: FlowRun) -> timedelta:
    return datetime.now(UTC) - run.state.timestamp if run.state else timedelta(0)


async def _held_back(client: PrefectClient, deployment_id: UUID) -> bool:
    """Tell whether a person holds a deployment's runs back: they wait, and have not failed."""
    # A paused deployment only has no schedule: its runs are due all the same.
    deployment = await client.read_deployment(deployment_id)
    if deployment.work_queue_id and (await client.read_work_queue(deployment.work_queue_id)).is_paused:
        return True
    return bool(
        deployment.work_pool_name and (await client.read_work_pool(deployment.work_pool_name)).is_paused
    )


async def _all(client: PrefectClient, wanted: FlowRunFilter) -> list[FlowRun]:
    """Return every run that fits, read before any of them is changed."""
    found: list[FlowRun] = []
    while page := await client.read_flow_runs(flow_run_filter=wanted, limit=PAGE, offset=len(found)):
        found += page
    return found
