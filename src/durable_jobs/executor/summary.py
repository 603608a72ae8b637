"""What a shift did, for its artifact."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID

from durable_jobs.jobs import Outcome
from durable_jobs.states import JobState

KEPT_FAILURES = 20


@dataclass
class ShiftSummary:
    """Counts of one shift; times are the process's own and only for people to read."""

    executor_id: UUID
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended_at: datetime | None = None
    ended_because: str = ""
    claimed: int = 0
    late: int = 0
    shown: int = 0
    not_shown: int = 0
    released: int = 0
    undeclared: Counter[str] = field(default_factory=Counter)
    """Jobs given back because their type is not declared in this program, by type."""
    outcomes: Counter[tuple[str, JobState]] = field(default_factory=Counter)
    failures: list[tuple[UUID, str, str]] = field(default_factory=list)
    """The last failures: job id, type, reason."""

    def written(self, outcome: Outcome) -> None:
        """Count one outcome that is in the store."""
        self.outcomes[outcome.job.job_type, outcome.state] += 1
        if outcome.state is JobState.FAILED:
            reason = outcome.failed_reason or ""
            self.failures.append((outcome.job.job_id, outcome.job.job_type, reason))
            del self.failures[:-KEPT_FAILURES]

    def count(self, state: JobState) -> int:
        """Return how many jobs ended so."""
        return sum(n for (_, s), n in self.outcomes.items() if s is state)
