"""What a store of jobs can do: `JobsStore` for one tenant's callers, `JobsOperator` for the flows.

No method of `JobsStore` takes a tenant: it is the one of the surrounding `job_tenant_scope`. A
write without a scope raises. `JobsOperator` works for all tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from durable_jobs.effects.store import EffectsStore
from durable_jobs.jobs import ClaimedJob, Job, NewJob, Outcome
from durable_jobs.states import JobState
from durable_jobs.stores.values import (
    Claim,
    Cursor,
    Decision,
    Executor,
    ExecutorView,
    Front,
    HeldJob,
    JobFilter,
    LoneJob,
    NewEvent,
    Note,
    Page,
    Paused,
    QueueCount,
    QueueUse,
    Registered,
    RemovedExecutor,
    StalledQueue,
    Unwritten,
)

__all__ = [
    "Claim",
    "Cursor",
    "Decision",
    "Executor",
    "ExecutorStore",
    "ExecutorView",
    "Fenced",
    "Front",
    "Heart",
    "HeldJob",
    "JobFilter",
    "JobsOperator",
    "JobsStore",
    "LoneJob",
    "NewEvent",
    "Note",
    "Page",
    "Paused",
    "QueueCount",
    "QueueUse",
    "ReconcilerStore",
    "Registered",
    "RemovedExecutor",
    "StalledQueue",
    "Unwritten",
]
"""The values too: who works with a store finds here what it is given and answers."""


class Heart(Protocol):
    """One executor's way to beat; used by one thread."""

    def beat(self) -> bool:
        """Beat once; False when the store has forgotten the executor.

        Raises:
            StoreUnavailable: the beat did not arrive.
        """
        ...

    def must_stop(self, running: Collection[UUID]) -> bool:
        """Tell whether one of these claims should have ended: it is overdue, cancelled or given up.

        Raises:
            StoreUnavailable: there is no answer.
        """
        ...

    def close(self) -> None:
        """Give the connection back."""
        ...


class Fenced(Protocol):
    """A claimed job, as far as a fenced write needs it."""

    @property
    def job_id(self) -> UUID:
        """Id of the job."""
        ...

    @property
    def claim_token(self) -> UUID:
        """The fence."""
        ...

    @property
    def tenant_id(self) -> str:
        """The tenant."""
        ...


def nothing_to_stop(job_id: UUID) -> str:
    """Return the text of the refusal to ask a waiting job to stop."""
    return f"job {job_id} is PENDING: nothing runs that could be asked to stop; cancel the job, which ends it at once"


@runtime_checkable
class JobsStore(Protocol):
    """What callers of one tenant can do."""

    async def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type, all or none; known idempotency keys answer with their chain.

        Raises:
            MissingTenant: outside of a tenant's scope.
            IdempotencyConflict: a key is used by another request.
            QueueFull: the queue has no room for all of them.
            StoreUnavailable: the store does not answer. Nothing was inserted, or all of it and the answer
                was lost; with a key, asking again tells which.
        """
        ...

    async def get(self, job_id: UUID) -> Job:
        """Return one job.

        Raises:
            JobNotFound: there is none in this tenant.
        """
        ...

    async def get_result(self, job_id: UUID) -> Any:
        """Return the result of a job, `None` while it has none.

        Raises:
            JobNotFound: there is none in this tenant.
        """
        ...

    async def update(self, job_id: UUID, *, progress: Any = None, request_cancel: bool = False) -> Job:
        """Note progress on a live job, or ask a running one to stop; never its state. Others stay as they are.

        Raises:
            JobNotFound: there is none in this tenant.
            NotAllowed: a waiting job is asked to stop; `cancel` ends it.
        """
        ...

    async def list_jobs(self, wanted: JobFilter, *, after: Cursor | None = None, limit: int = 50) -> Page:
        """Return a stable page of jobs, newest first."""
        ...

    async def list_failed(self, wanted: JobFilter, *, after: Cursor | None = None, limit: int = 50) -> Page:
        """Return a stable page of FAILED jobs, those that failed last first.

        `since` is when they failed; `retryable` jobs are those that can be retried now, so not those that
        were resubmitted. States and queue of the filter do not matter.
        """
        ...


@runtime_checkable
class JobsOperator(Protocol):
    """What flows and people on duty can do."""

    async def now(self) -> datetime:
        """Return the store's time, by which everything is judged."""
        ...

    async def enter_executor(self, executor: Executor) -> None:
        """Make an executor known; its jobs are orphans when it is silent."""
        ...

    async def beat(self, executor_id: UUID) -> bool:
        """Tell that an executor lives; False when the store has forgotten it."""
        ...

    async def leave_executor(self, executor_id: UUID) -> None:
        """Forget an executor and free its leases."""
        ...

    async def set_idle(self, executor_id: UUID, idle: bool) -> None:
        """Say whether a registration must wake this executor."""
        ...

    async def set_draining(self, executor_id: UUID) -> None:
        """Say that this executor claims no more."""
        ...

    async def serve_less(
        self, executor_id: UUID, *, queues: Sequence[str], job_types: Sequence[str], left_out: Sequence[str]
    ) -> None:
        """Say what an executor still serves, and which types it claims no more; others share what it lets go."""
        ...

    async def executors(self) -> list[ExecutorView]:
        """Return all executors, newest first."""
        ...

    async def lease_queues(
        self, executor_id: UUID, uses: Sequence[QueueUse], *, stale_after: timedelta
    ) -> dict[str, int]:
        """Return how much of each queue's concurrency this executor holds now."""
        ...

    async def claim(
        self,
        executor_id: UUID,
        queue: str,
        limit: int,
        *,
        after_tenant: str = "",
        fronts: Sequence[Front] | None = None,
        now: datetime | None = None,
    ) -> Claim:
        """Take at most `limit` due jobs of a queue, tenants by turns from the one behind `after_tenant`.

        With `fronts` only those ranks are looked at, which is cheap and may miss others.
        """
        ...

    async def claim_job(
        self, executor_id: UUID, tenant_id: str, job_id: UUID, *, now: datetime | None = None
    ) -> ClaimedJob | None:
        """Take one waiting job by its id; None when it is not waiting."""
        ...

    async def finish(self, outcomes: Sequence[Outcome], *, now: datetime | None = None) -> list[Unwritten]:
        """Write outcomes under their fences, and return those that were not written."""
        ...

    async def release(
        self, jobs: Sequence[tuple[Fenced, bool]], reason: str, *, now: datetime | None = None
    ) -> None:
        """Give running jobs back: to PENDING where the flag says so, else FAILED with the reason."""
        ...

    async def note(self, notes: Sequence[Note]) -> None:
        """Write progress and task run ids of running jobs."""
        ...

    async def held(self, executor_id: UUID) -> list[HeldJob]:
        """Return what an executor holds."""
        ...

    async def fail_overdue(
        self, *, margin: timedelta, tenant: str | None = None, limit: int = 100, now: datetime | None = None
    ) -> list[UUID]:
        """End running jobs (of one tenant) past their deadline or a cancel request by more than the margin."""
        ...

    async def cancel(self, job_id: UUID, *, by: str | None = None, now: datetime | None = None) -> Job:
        """Cancel a waiting or failed job, ask a running one to stop; a terminal one raises NotAllowed."""
        ...

    async def retry(
        self,
        job_id: UUID,
        *,
        max_pending: int | None,
        by: str | None = None,
        run_at: datetime | None = None,
        now: datetime | None = None,
    ) -> Job:
        """Make the one retry of a failed job and return it; at the limit return the job, ABANDONED.

        Asking again gives the same answer.

        Raises:
            JobNotFound, NotAllowed (not FAILED, not retryable, or resubmitted), QueueFull.
        """
        ...

    async def resubmit(
        self,
        job_id: UUID,
        *,
        max_pending: int | None,
        retryable: bool = True,
        by: str | None = None,
        now: datetime | None = None,
    ) -> Job:
        """Make a new root of a failed or abandoned job.

        Raises:
            JobNotFound, NotAllowed, QueueFull.
        """
        ...

    async def silent_executors(self, *, stale_after: timedelta) -> list[UUID]:
        """Return executors that have not beaten for so long."""
        ...

    async def tenants(self, kind: str, *, queue: str | None = None) -> list[str]:
        """Return tenants with jobs of a kind: pending (in a queue), running, failed, unpublished, any."""
        ...

    async def settle_orphans(
        self,
        tenant_id: str,
        silent: Sequence[UUID],
        decide: Callable[[Job], Decision | None],
        *,
        max_crashes: int,
        skip: Collection[UUID] = (),
        limit: int = 10,
        now: datetime | None = None,
    ) -> dict[UUID, JobState]:
        """Settle up to `limit` orphans of one tenant in one transaction; return what became of each.

        `decide` is called once for each orphan; those in `skip`, and those it decides nothing about, are
        left alone.
        """
        ...

    async def pause(self, kind: str, name: str, *, by: str | None = None) -> None:
        """Hold a queue or a type back; what waits, waits. The event tells of it, unless it was paused already."""
        ...

    async def resume(self, kind: str, name: str, *, by: str | None = None) -> bool:
        """Let it go on, and tell of it; False when it was not paused."""
        ...

    async def paused(self) -> list[Paused]:
        """Return what is paused."""
        ...

    async def counts(self) -> list[QueueCount]:
        """Return how many jobs are live or dead letters, over all tenants."""
        ...

    async def tell_stalled(self, *, after: timedelta, now: datetime | None = None) -> list[StalledQueue]:
        """Return the queues whose oldest due job waits for longer; each is told once, when that begins.

        What is paused is not among them.
        """
        ...

    async def record_events(self, events: Sequence[NewEvent]) -> None:
        """Put events into the outbox."""
        ...


@runtime_checkable
class ExecutorStore(JobsOperator, EffectsStore, Protocol):
    """What an executor needs beside: a heart for its thread, and being woken."""

    def heart(self, executor_id: UUID) -> Heart:
        """Return a way to beat from a thread, with a connection of its own."""
        ...

    async def listen(self, on_queue: Callable[[str], None], on_cancel: Callable[[str], None]) -> None:
        """Call back when a queue gets work ("" for any) or a job of an executor is cancelled; until cancelled."""
        ...


@runtime_checkable
class ReconcilerStore(JobsOperator, Protocol):
    """What the reconciler needs beside."""

    def only_one(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Hold a lock for the block; False when another process holds it."""
        ...

    async def has_rows(self) -> bool:
        """Tell whether there is any job, by the database's own statistics: a check of the enumeration."""
        ...

    async def remove_executors(
        self, silent: Sequence[UUID], *, stale_after: timedelta
    ) -> list[RemovedExecutor]:
        """Forget executors that are still silent and hold no job any more."""
        ...

    async def waiting_alone(
        self, isolated: Sequence[str], *, stale_after: timedelta, limit: int
    ) -> list[LoneJob]:
        """Return due jobs of isolated queues and suspects that need a flow run, up to `limit` for each queue."""
        ...

    async def dispatched(self, isolated: Sequence[str]) -> dict[str, int]:
        """Return how many jobs of each isolated queue are running or have a flow run."""
        ...

    async def mark_dispatched(self, job: LoneJob, flow_run_id: UUID) -> bool:
        """Note a job's flow run; False when it waits no more or somebody else did."""
        ...

    async def unstoppable_runs(self, *, margin: timedelta) -> list[UUID]:
        """Return flow runs of isolated jobs that should have stopped longer than the margin ago."""
        ...
