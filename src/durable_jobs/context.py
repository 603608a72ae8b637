"""What a processor is given beside its request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import structlog

from durable_jobs.jobs import ClaimedJob

_default_logger = structlog.get_logger("durable_jobs.job")


class JobContext:
    """The job that is executed, and what its processor may tell and ask.

    Safe to use from the processor's own thread or task.
    """

    __slots__ = ("_job", "_report", "_stopped", "logger")

    def __init__(
        self, job: ClaimedJob, report: Callable[[ClaimedJob, str], None], logger: Any = None
    ) -> None:
        """Made by the executor."""
        self._job = job
        self._report = report
        self._stopped = threading.Event()
        self.logger: Any = logger or _default_logger.bind(job_id=str(job.job_id), tenant_id=job.tenant_id)

    @property
    def job_id(self) -> UUID:
        """Id of this job."""
        return self._job.job_id

    @property
    def root_job_id(self) -> UUID:
        """Id of the first job of the chain; the same for every retry."""
        return self._job.root_job_id

    @property
    def tenant_id(self) -> str:
        """The tenant in whose name the job runs; also the surrounding scope."""
        return self._job.tenant_id

    @property
    def correlation_id(self) -> str | None:
        """What the submitter gave to find related work."""
        return self._job.correlation_id

    @property
    def retry_count(self) -> int:
        """0 for a first attempt."""
        return self._job.retry_count

    @property
    def cancelled(self) -> bool:
        """Whether the execution is to stop: cancelled, timed out, or its shift ends.

        Processors in a thread look at it now and then and return; async ones are interrupted.
        """
        return self._stopped.is_set()

    def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is; written about once a second, the last report wins.

        Args:
            current: how much is done, in any unit.
            total: how much there is in that unit.
            message: what is being done.
        """
        document = {"current": current, "total": total, "message": message}
        self._report(self._job, json.dumps({k: v for k, v in document.items() if v is not None}))

    def stop(self) -> None:
        """Ask the processor to stop; called by the executor."""
        self._stopped.set()
