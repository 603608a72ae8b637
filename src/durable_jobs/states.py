"""The seven states of a job, and which of them are final.

Invariant: a terminal row never changes. FAILED is terminal exactly when the job is not retryable.
"""

from __future__ import annotations

from enum import StrEnum


class JobState(StrEnum):
    """State of a job (`job_history.state`)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    RETRIED = "RETRIED"
    ABANDONED = "ABANDONED"


LIVE = frozenset({JobState.PENDING, JobState.RUNNING})
TERMINAL = frozenset({JobState.SUCCEEDED, JobState.CANCELLED, JobState.RETRIED, JobState.ABANDONED})

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.PENDING: frozenset({JobState.RUNNING, JobState.FAILED, JobState.CANCELLED}),
    JobState.RUNNING: frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.PENDING}),
    JobState.FAILED: frozenset({JobState.RETRIED, JobState.ABANDONED, JobState.CANCELLED}),
    JobState.SUCCEEDED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.RETRIED: frozenset(),
    JobState.ABANDONED: frozenset(),
}
"""What may follow what. PENDING -> FAILED happens when a waiting job's payload no longer validates."""


def is_terminal(state: JobState, *, retryable: bool) -> bool:
    """Tell whether a row in this state may never change again."""
    return state in TERMINAL or (state is JobState.FAILED and not retryable)
