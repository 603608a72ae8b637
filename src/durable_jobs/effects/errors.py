"""How an execution ends that must not make an effect, or does not know whether it has."""

from __future__ import annotations

from durable_jobs.effects.store import Answer
from durable_jobs.errors import BadInput, DurableJobsError, NotRetryable


class ExecutionOver(DurableJobsError):
    """This execution may make no effect any more: its job was given up, cancelled, or is overdue."""

    def __init__(self, answer: Answer, effect_type: str) -> None:
        """Keep why; the executor ends the execution accordingly."""
        self.answer = answer
        why = {
            Answer.LOST: "the job was given up while it ran, another execution may be at it",
            Answer.CANCELLED: "the job is to be cancelled",
            Answer.OVERDUE: "the job's deadline has passed",
        }[answer]
        super().__init__(f"no effect {effect_type} is made: {why}; let this error end the processor")


class EffectHeld(DurableJobsError):
    """Another execution is making the same effect and did not end in time; a retry finds out."""


class EffectUnknown(DurableJobsError, NotRetryable):
    """An earlier attempt may have made the effect, and its policy is to stop for a person."""


class EffectNotChecked(BadInput, NotRetryable):
    """A block around an effect did not ask whether the effect exists already."""


class EffectNotMade(Exception):
    """Raise it inside the block of an effect: it is known not to have happened, so a retry may make it."""
