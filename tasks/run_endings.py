"""Reads from Prefect how flow runs ended, as plain data for the domain."""

from __future__ import annotations

from typing import Any

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.exceptions import MissingResult
from prefect.serializers import JSONSerializer

from durable_jobs.flow_runs.endings import OURS, EndedRun
from durable_jobs.tasks.asking import until_answered


def as_ended(run: FlowRun, called_off_by_us: str | None = None) -> EndedRun:
    """Return an ended run as plain data."""
    state = run.state
    return EndedRun(
        run.id,
        str(run.state_type.value if run.state_type else "FAILED"),
        (state.name if state else None) or "Unknown",
        state.message if state else None,
        run.parameters,
        called_off_by_us,
    )


async def read_end(run: FlowRun) -> EndedRun:
    """Return an ended run as plain data; of a cancelled one it is found out whether we asked for that."""
    ours = await until_answered(lambda c: _our_request(c, run)) if is_cancelled(run) else None
    return as_ended(run, ours)


def is_cancelled(run: FlowRun) -> bool:
    """Tell whether Prefect books a run as cancelled."""
    return run.state_type is StateType.CANCELLED


async def _our_request(client: PrefectClient, run: FlowRun) -> str | None:
    said = [state.message or "" for state in await client.read_flow_run_states(run.id)]
    return next((message for message in said if message.startswith(OURS)), None)


async def read_result(run: FlowRun) -> Any:
    """Return what a run returned if it was persisted as JSON, else None: nothing of a run is unpickled here."""
    state = run.state
    if state is None or not isinstance(getattr(state.data, "serializer", None), JSONSerializer):
        return None
    try:
        return await state.aresult(raise_on_failure=False, retry_result_failure=False)
    except (MissingResult, ValueError, TypeError, ImportError, AttributeError, OSError):
        # Kept where this machine cannot read it, or of a class that is not installed here.
        return None
