"""Durable jobs for people who already run Prefect and Postgres.

A name is loaded when it is first asked for, so that whoever declares job types does not load the database's
driver, and `import durable_jobs` costs nothing. Type checkers and editors read the imports below.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from durable_jobs.client import AsyncJobsClient, JobsClient
    from durable_jobs.context import JobContext
    from durable_jobs.effects import Effect, EffectNotMade
    from durable_jobs.errors import (
        BadInput,
        DurableJobsError,
        IdempotencyConflict,
        InvalidPayload,
        JobNotFound,
        NotAllowed,
        NotRetryable,
        QueueFull,
        StoreUnavailable,
        UnknownJobType,
    )
    from durable_jobs.job_types import job_type
    from durable_jobs.jobs import Job
    from durable_jobs.queues import Queue
    from durable_jobs.registration import register_job, register_jobs
    from durable_jobs.states import JobState
    from durable_jobs.tenants import job_tenant_scope
    from durable_jobs.texts import Skipped

_MODULES = {
    "AsyncJobsClient": "client",
    "BadInput": "errors",
    "DurableJobsError": "errors",
    "Effect": "effects",
    "EffectNotMade": "effects",
    "IdempotencyConflict": "errors",
    "InvalidPayload": "errors",
    "Job": "jobs",
    "JobContext": "context",
    "JobNotFound": "errors",
    "JobState": "states",
    "JobsClient": "client",
    "NotAllowed": "errors",
    "NotRetryable": "errors",
    "Queue": "queues",
    "QueueFull": "errors",
    "Skipped": "texts",
    "StoreUnavailable": "errors",
    "UnknownJobType": "errors",
    "job_tenant_scope": "tenants",
    "job_type": "job_types",
    "register_job": "registration",
    "register_jobs": "registration",
}

__all__ = [
    "AsyncJobsClient",
    "BadInput",
    "DurableJobsError",
    "Effect",
    "EffectNotMade",
    "IdempotencyConflict",
    "InvalidPayload",
    "Job",
    "JobContext",
    "JobNotFound",
    "JobState",
    "JobsClient",
    "NotAllowed",
    "NotRetryable",
    "Queue",
    "QueueFull",
    "Skipped",
    "StoreUnavailable",
    "UnknownJobType",
    "job_tenant_scope",
    "job_type",
    "register_job",
    "register_jobs",
]

# Hidden from type checkers: to them a misspelt name is an error, not something that may be found here.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
