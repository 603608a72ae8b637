"""Has flow runs of others ended: asks their runners to kill them, and closes those that nobody ends."""

from __future__ import annotations

from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Crashed

from durable_jobs.flow_runs.endings import OURS
from durable_jobs.tasks.runs import is_live


async def call_off(flow_run_id: UUID, why: str) -> bool:
    """Ask for the end of a run; False when it has ended, is asked already, or is gone."""
    async with get_client() as client:
        try:
            run = await client.read_flow_run(flow_run_id)
        except ObjectNotFound:
            return False
        if not is_live(run) or run.state_type is StateType.CANCELLING:
            return False
        await client.set_flow_run_state(flow_run_id, Cancelling(message=f"{OURS}{why}"))
        return True


async def close(flow_run_id: UUID, why: str) -> None:
    """Set a run to Crashed that nobody runs, so that nobody begins it later."""
    async with get_client() as client:
        await client.set_flow_run_state(flow_run_id, Crashed(message=f"{OURS}{why}"), force=True)
