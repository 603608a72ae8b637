"""One execution of one job: from the stored payload to its outcome, whatever the code does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from durable_jobs import payloads
from durable_jobs.context import JobContext
from durable_jobs.effects import EffectsStore, ExecutionOver
from durable_jobs.effects.store import Answer
from durable_jobs.errors import CalledOff, DurableJobsError, NotRetryable
from durable_jobs.executor.threads import run_in_thread
from durable_jobs.executor.visibility import Show, shown
from durable_jobs.job_types import JobType
from durable_jobs.jobs import ClaimedJob, Outcome
from durable_jobs.logs import work_on
from durable_jobs.states import JobState
from durable_jobs.tenants import enter_tenant
from durable_jobs.texts import clean, reason_of, result_text

Report = Callable[[ClaimedJob, str | None, UUID | None], None]
"""Takes progress, or the id of the task run, of a running job."""


class Stop(Enum):
    """Why an execution is asked to end."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    SHUTDOWN = "shutdown"
    FENCED = "fenced"
    """The store has given the job up already: nothing that this execution says counts."""


_STOPPED_BY = {Answer.LOST: Stop.FENCED, Answer.CANCELLED: Stop.CANCEL, Answer.OVERDUE: Stop.TIMEOUT}
"""What an execution that may make no effect any more has been stopped by."""


class Execution:
    """A running job. Its task ends with an outcome, or with none when others decide about the job."""

    __slots__ = (
        "_context",
        "_effects",
        "declared",
        "has_outcome",
        "job",
        "started",
        "stop_asked_at",
        "stopped",
        "task",
        "task_run_id",
    )

    def __init__(self, job: ClaimedJob, declared: JobType, effects: EffectsStore) -> None:
        """Take a job that this executor has claimed, and its type."""
        self.job = job
        self.declared = declared
        self.started = time.monotonic()
        self.stopped: Stop | None = None
        self.stop_asked_at: float | None = None
        self.task: asyncio.Task[None] | None = None
        self.task_run_id: UUID | None = None
        self.has_outcome = False
        self._context: JobContext | None = None
        self._effects = effects

    @property
    def follows(self) -> bool:
        """Whether it only follows work that is done elsewhere."""
        return self.declared.follows

    @property
    def overdue(self) -> bool:
        """Whether the job's timeout has passed."""
        return time.monotonic() - self.started > self.job.timeout.total_seconds()

    def note(self, why: Stop) -> None:
        """Take down that it is to end, and from when; what it raises from now on is no failure of its own."""
        if self.stopped is None:
            self.stopped = why
            self.stop_asked_at = time.monotonic()

    def stop(self, why: Stop) -> None:
        """Ask the code to end; async code is interrupted, code in a thread must look."""
        self.note(why)
        if self._context is None:
            # Not begun: `run` looks first. Cancelled now, the task would end without entering it.
            return
        self._context.stop(why.value)
        if self.task is not None and self.declared.is_async:
            self.task.cancel()

    async def run(self, report: Report, *, show: Show | None, max_result_bytes: int) -> Outcome | None:
        """Execute the processor, in a task of its own; never raises, whatever it does."""
        job, declared = self.job, self.declared
        try:
            request = payloads.load(declared, job.payload, job.payload_version)
        except DurableJobsError as error:
            return Outcome(job, JobState.FAILED, None, reason_of(error), False)
        work_on(job)
        self._context = JobContext(job, lambda j, text: report(j, text, None), effects=self._effects)
        if self.stopped is not None:
            return self.stop_outcome()
        enter_tenant(job.tenant_id)
        execute = partial(self._execute, declared, request, self._context, report)
        try:
            value = await (shown(show, job, execute) if show is not None else execute(None, None))
        except NotRetryable as error:
            return self.stop_outcome() or Outcome(job, JobState.FAILED, None, reason_of(error), False)
        except CalledOff as error:
            return self.stop_outcome() or Outcome(job, JobState.CANCELLED, None, clean(str(error)))
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 -- the executor's edge
            if isinstance(error, ExecutionOver) and self.stopped is None:
                self.stopped = _STOPPED_BY[error.answer]
            if self.stopped in (Stop.SHUTDOWN, Stop.FENCED):
                return None
            return self.stop_outcome() or Outcome(job, JobState.FAILED, None, reason_of(error))
        if self.stopped in (Stop.SHUTDOWN, Stop.FENCED) and self._context.noticed_the_end:
            # It looked, saw that it is to end, and returned: that is no success.
            return None
        return self.stop_outcome() or Outcome(
            job, JobState.SUCCEEDED, result_text(value, max_bytes=max_result_bytes)
        )

    def stop_outcome(self) -> Outcome | None:
        """Return the outcome that follows from being stopped, if any does."""
        if self.stopped is Stop.TIMEOUT:
            return Outcome(
                self.job, JobState.FAILED, None, f"timed out after {self.job.timeout.total_seconds():g} s"
            )
        if self.stopped is Stop.CANCEL:
            return Outcome(self.job, JobState.CANCELLED)
        return None

    async def _execute(
        self,
        declared: JobType,
        request: BaseModel,
        context: JobContext,
        report: Report,
        logger: Any,
        task_run_id: UUID | None,
    ) -> Any:
        if logger is not None:
            context.logger = logger
        if task_run_id is not None:
            self.task_run_id = task_run_id
            report(self.job, None, task_run_id)
        if declared.is_async:
            return await declared.processor(request, context)
        # The loop can leave a thread that does not end; the shift then recycles its process.
        return await run_in_thread(declared.processor, request, context)
