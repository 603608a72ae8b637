"""What the API refuses, as the errors that the same call would raise beside the database.

Each has the problem document as its cause, an `ApiProblem`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx

from durable_jobs.errors import (
    BadInput,
    DurableJobsError,
    IdempotencyConflict,
    InvalidPayload,
    JobNotFound,
    NotAllowed,
    PayloadTooLarge,
    PurgeRefused,
    PurgeUnderWay,
    QueueFull,
    RetentionViolated,
    StoreUnavailable,
    UnknownJobType,
    UnknownQueue,
)

_PREFIX = "urn:durable-jobs:problem:"
_QUEUE = re.compile(r"queue '([^']*)' is full")
_BOUND = re.compile(r"may hold (\d+)")


class ApiProblem(DurableJobsError):
    """The API answered with a problem document, or with something that is none."""

    def __init__(
        self, status: int, name: str, detail: str, *, errors: tuple[Mapping[str, Any], ...], request_id: str
    ) -> None:
        """Keep the status, the problem's name, each wrong field, and the request's id in the API's log."""
        self.status, self.name, self.errors, self.request_id = status, name, errors, request_id
        super().__init__(detail)


class AccessDenied(BadInput):
    """The token is missing, not accepted, or lacks a scope."""


class RateLimited(DurableJobsError):
    """The tenant made too many requests, and waiting for its turn would have taken too long."""

    exit_code = 3


class RemoteQueueFull(QueueFull):
    """The queue holds as many waiting jobs as it may."""

    def __init__(self, detail: str) -> None:
        """Tell what the API told."""
        DurableJobsError.__init__(self, detail)
        self.queue = found[1] if (found := _QUEUE.search(detail)) else ""
        self.max_pending = int(found[1]) if (found := _BOUND.search(detail)) else 0


class ApiUnavailable(StoreUnavailable):
    """The API does not answer, or cannot reach its store; whether it did what was asked is not known."""


class WaitTimeout(DurableJobsError):
    """The job had not ended in time; it goes on without being waited for."""


_KINDS: dict[str, type[DurableJobsError]] = {
    "job-not-found": JobNotFound,
    "unknown-job-type": UnknownJobType,
    "unknown-queue": UnknownQueue,
    "unknown-type": UnknownJobType,
    "invalid-payload": InvalidPayload,
    "payload-too-large": PayloadTooLarge,
    "body-too-large": PayloadTooLarge,
    "idempotency-key-reused": IdempotencyConflict,
    "not-allowed": NotAllowed,
    "purge-refused": PurgeRefused,
    "purge-under-way": PurgeUnderWay,
    "queue-full": RemoteQueueFull,
}
_BY_STATUS: dict[int, type[DurableJobsError]] = {
    400: BadInput,
    401: AccessDenied,
    403: AccessDenied,
    413: PayloadTooLarge,
    422: BadInput,
    429: RateLimited,
    503: ApiUnavailable,
}


def error_of(response: httpx.Response) -> DurableJobsError:
    """Return the error that an answer is, with the problem document as its cause."""
    problem = _problem(response)
    if problem.name == "retention-violated":
        error: DurableJobsError = RetentionViolated(str(problem), early=False)
    else:
        kind = _KINDS.get(problem.name) or _BY_STATUS.get(problem.status)
        if kind is None and problem.status >= 500:
            kind = ApiUnavailable
        if kind is None:
            return problem
        error = kind(str(problem))
    error.__cause__ = problem
    return error


def _problem(response: httpx.Response) -> ApiProblem:
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict) or "detail" not in document:
        return stranger(response)
    return ApiProblem(
        response.status_code,
        str(document.get("type", "")).removeprefix(_PREFIX),
        str(document["detail"]),
        errors=tuple(document.get("errors") or ()),
        request_id=str(document.get("instance") or "").removeprefix("urn:request:"),
    )


def stranger(response: httpx.Response) -> ApiProblem:
    """Return the error that an answer is which the API did not give."""
    where = response.request.url.copy_with(userinfo=b"", query=None)
    detail = (
        f"{where} answered with HTTP {response.status_code}, not as the API of durable-jobs does;"
        " check the URL and what stands between"
    )
    return ApiProblem(response.status_code, "", detail, errors=(), request_id="")
