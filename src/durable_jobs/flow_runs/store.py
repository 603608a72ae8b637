"""What keeping failed flow runs needs of a store; both stores have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from durable_jobs.jobs import NewJob
from durable_jobs.states import JobState


class NewFailure(NamedTuple):
    """A failure that happened outside, to be kept as a FAILED job; the job has an idempotency key."""

    job: NewJob
    flow_run_id: UUID
    """The run that failed."""
    reason: str
    failed_at: datetime
    """By Prefect's clock."""


class Kept(NamedTuple):
    """The job that keeps a failure, and whether this call made it."""

    job_id: UUID
    created: bool


class RunJob(NamedTuple):
    """A job of a flow run that has ended: FAILED and retryable, or CANCELLED."""

    tenant_id: str
    job_id: UUID
    state: JobState
    flow_run_id: UUID | None


@runtime_checkable
class FailureStore(Protocol):
    """Keeps failures of flow runs, and how far they were looked for."""

    async def register_failed(
        self,
        failures: Sequence[NewFailure],
        *,
        by: str | None = None,
        each: int = 20,
        now: datetime | None = None,
    ) -> list[Kept]:
        """Insert FAILED jobs of the scope's tenant with their events, in one statement.

        A failure whose key is known has its job already. So has one of a run whose earlier failure is kept
        by a chain that goes on or was given up: only what failed after that chain was cancelled or has
        succeeded is a new failure.

        Args:
            failures: distinct keys; 100 at most.
            by: who found them, for the events.
            each: up to so many have an event each; more share one.
            now: the time, for tests.

        Raises:
            MissingTenant: outside of a tenant's scope.
            StoreUnavailable: the store does not answer; asking again tells what was inserted.
        """
        ...

    async def link_flow_run(self, job_id: UUID, flow_run_id: UUID) -> None:
        """Note the flow run that a running job of the scope's tenant follows."""
        ...

    async def jobs_of_runs(self, *, cancelled_since: datetime, limit: int = 1_000) -> list[RunJob]:
        """Return jobs of all tenants about whose runs Prefect may know better, newest first.

        Dead letters, whose run may have been started again; and what was cancelled since, whose run may go on.
        """
        ...

    async def positions(self, names: Sequence[str]) -> dict[str, datetime]:
        """Return how far the named searches have come; a search that is not known is missing."""
        ...

    async def keep_positions(self, reached: Mapping[str, datetime]) -> None:
        """Remember how far searches have come; none goes back."""
        ...
