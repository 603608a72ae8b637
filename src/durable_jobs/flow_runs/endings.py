"""How a flow run ended, and what that means for the job that stands for it.

Prefect says CANCELLED of a run that a person cancelled, of one that its runner killed when it was shut down,
and of one that found no place under a limit. Only the first is a decision; the others are failures.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from durable_jobs.flow_runs.hiding import without_values
from durable_jobs.texts import clean

OURS = "durable-jobs: "
"""How the message begins of every state that we give to a run."""
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
# What Prefect 3.9 says when nobody asked for the cancellation.
_BY_A_RUNNER = ("Runner is shutting down.",)
_BY_A_LIMIT = ("Deployment concurrency limit reached.",)


class End(Enum):
    """What the end of a run means."""

    WELL = "completed"
    FAILURE = "failed"
    CALLED_OFF = "called off"
    REFUSED = "refused by a limit"


class EndedRun(NamedTuple):
    """A run in a final state, as Prefect tells of it; times and counts of attempts are Prefect's."""

    flow_run_id: UUID
    state_type: str
    state_name: str
    message: str | None
    parameters: dict[str, object]
    called_off_by_us: str | None = None
    """The message of our own request to cancel it, if there was one."""


def end_of(run: EndedRun) -> End:
    """Say what the end of a run means."""
    if run.state_type == "COMPLETED":
        return End.WELL
    if run.state_type != "CANCELLED" or run.called_off_by_us is not None:
        return End.FAILURE
    said = run.message or ""
    if said.startswith(OURS) or said in _BY_A_RUNNER:
        return End.FAILURE
    return End.REFUSED if said in _BY_A_LIMIT else End.CALLED_OFF


def reason_for(run: EndedRun) -> str:
    """Return the state and its message, without any value of the run's parameters."""
    said = run.called_off_by_us or run.message or "no message"
    return clean(without_values(f"{run.state_name}: {said.removeprefix(OURS)}", run.parameters))
