"""Clients of the HTTP API: `JobsClient` and `AsyncJobsClient` do the same and are made of the same parts."""

from durable_jobs.client.clients import AsyncJobsClient, JobsClient
from durable_jobs.client.errors import (
    AccessDenied,
    ApiProblem,
    ApiUnavailable,
    RateLimited,
    RemoteQueueFull,
    WaitTimeout,
)

__all__ = [
    "AccessDenied",
    "ApiProblem",
    "ApiUnavailable",
    "AsyncJobsClient",
    "JobsClient",
    "RateLimited",
    "RemoteQueueFull",
    "WaitTimeout",
]
