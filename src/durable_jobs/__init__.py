"""Durable jobs for people who already run Prefect and Postgres."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from durable_jobs.client import AsyncJobsClient, JobsClient

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

_CLIENTS = ("AsyncJobsClient", "JobsClient")


def __getattr__(name: str) -> Any:
    """Load the clients when they are asked for: httpx loads slowly, and few programs use both."""
    if name in _CLIENTS:
        from durable_jobs import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
