"""Our errors as answers: which status each has, and what of its text a caller may read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match

from durable_jobs.api.problems import FieldFault, Refusal, kind_of, render, retry_after
from durable_jobs.errors import (
    BadInput,
    DurableJobsError,
    IdempotencyConflict,
    InvalidPayload,
    InvalidSettings,
    JobNotFound,
    MissingTenant,
    NotAllowed,
    PayloadTooLarge,
    PurgeRefused,
    PurgeUnderWay,
    QueueFull,
    RetentionViolated,
    SchemaOutdated,
    StoreUnavailable,
    UnknownJobType,
    UnknownQueue,
    UnsafeDatabaseRole,
)

logger = structlog.get_logger(__name__)

MOST_FAULTS = 20
ROOM_AFTER_S = 5
STORE_AFTER_S = 2
_STATUSES: tuple[tuple[type[DurableJobsError], int, str], ...] = (
    (PayloadTooLarge, 413, "payload-too-large"),
    (IdempotencyConflict, 422, "idempotency-key-reused"),
    (UnknownJobType, 400, "unknown-job-type"),
    (UnknownQueue, 404, "unknown-queue"),
    (InvalidPayload, 400, "invalid-payload"),
    (BadInput, 400, "bad-input"),
    (JobNotFound, 404, "job-not-found"),
    (NotAllowed, 400, "not-allowed"),
    (PurgeUnderWay, 409, "purge-under-way"),
    (PurgeRefused, 409, "purge-refused"),
    (RetentionViolated, 409, "retention-violated"),
)
# The fault is the server's: a caller learns that, the log learns which.
_OF_THE_SERVER = (InvalidSettings, SchemaOutdated, UnsafeDatabaseRole, MissingTenant)


def answer_errors(app: FastAPI) -> None:
    """Have the application answer every error with a problem."""
    app.add_exception_handler(Refusal, _handle)
    app.add_exception_handler(DurableJobsError, _handle)
    app.add_exception_handler(RequestValidationError, _handle)
    app.add_exception_handler(HTTPException, _handle)


async def _handle(request: Request, error: Exception) -> Response:
    return render(refusal_of(error, request.scope), request.scope.get("request_id"))


def refusal_of(error: Exception, scope: Mapping[str, Any]) -> Refusal:
    """Return the problem that an error is."""
    match error:
        case Refusal():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _of_http(error, scope)
        case StoreUnavailable():
            logger.warning("the store is away", error=str(error), path=scope.get("path"))
            return Refusal(
                503,
                "store-unavailable",
                "the job store does not answer now, so it is not known to have been done; try again"
                " (a submission with an idempotency key can be repeated without harm)",
                headers=retry_after(STORE_AFTER_S),
            )
        case QueueFull():
            return Refusal(
                429,
                "queue-full",
                f"queue {error.queue!r} is full: it may hold {error.max_pending} waiting jobs;"
                " try again when jobs have been executed",
                headers=retry_after(ROOM_AFTER_S),
            )
        case DurableJobsError() if isinstance(error, _OF_THE_SERVER):
            logger.error("the server is not set up", error=str(error), path=scope.get("path"))
            return Refusal(
                503,
                "not-set-up",
                "this server is not set up to do that; its log and `durable-jobs check` say what to do",
                headers=retry_after(30),
            )
        case DurableJobsError():
            return _of_ours(error)
    raise error


def _of_ours(error: DurableJobsError) -> Refusal:
    for kind, status, name in _STATUSES:
        if isinstance(error, kind):
            return Refusal(status, name, str(error), errors=_payload_faults(error))
    return Refusal(400, "refused", str(error))


def _payload_faults(error: DurableJobsError) -> list[FieldFault]:
    if isinstance(error, InvalidPayload) and isinstance(error.__cause__, ValidationError):
        return _faults(error.__cause__.errors(include_url=False, include_context=False), ("data",))
    if isinstance(error, UnknownJobType):
        return [FieldFault(field="type", kind="string", message=str(error))]
    return []


def _invalid(error: RequestValidationError) -> Refusal:
    faults = _faults(error.errors(), ())
    first = f"{faults[0].field}: {faults[0].message}" if faults else "the request cannot be read"
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Refusal(400, "invalid-request", f"{first}{more}", errors=faults)


def _faults(faults: Iterable[Any], prefix: Sequence[str]) -> list[FieldFault]:
    return [
        FieldFault(
            field=_path([*prefix, *fault["loc"]]),
            kind="missing" if fault["type"] == "missing" else kind_of(fault.get("input")),
            message=_sentence(fault),
        )
        for fault in list(faults)[:MOST_FAULTS]
    ]


def _path(parts: Sequence[str | int]) -> str:
    # The body's fields are named as people write them, what is elsewhere says where it is.
    inner = parts[1:] if parts and parts[0] == "body" and len(parts) > 1 else parts
    if len(parts) == 2 and parts[0] == "body" and isinstance(parts[1], int):
        inner = parts[:1]  # a place in a text that is not JSON
    return ".".join(str(part) for part in inner)


def _sentence(fault: Mapping[str, Any]) -> str:
    if fault["type"] == "json_invalid":
        where = f" (at character {fault['loc'][-1]})" if fault["loc"] else ""
        why = str(fault.get("ctx", {}).get("error", fault["msg"])).removesuffix(" at")
        return f"the body is not JSON: {why}{where}"
    if fault["type"] == "extra_forbidden":
        return "there is no such field; leave it out, or check how it is written"
    if fault["type"] == "model_attributes_type":
        return "it must be a JSON object, sent with Content-Type: application/json"
    return str(fault["msg"]).removeprefix("Value error, ")


def _of_http(error: HTTPException, scope: Mapping[str, Any]) -> Refusal:
    path, headers = scope.get("path", ""), dict(error.headers or {})
    if error.status_code == 404:
        detail = f"there is nothing at {path[:200]!r}; /openapi.json tells what there is"
        return Refusal(404, "not-found", detail, headers=headers)
    if error.status_code == 405:
        # The framework names the methods of the first route alone.
        allowed = _methods(scope) or headers.get("Allow", "another method")
        headers["Allow"] = allowed
        detail = f"{scope.get('method')} is not possible at {path[:200]!r}; use {allowed}"
        return Refusal(405, "method-not-allowed", detail, headers=headers)
    if error.status_code == 400 and error.__cause__ is not None:
        return _unreadable(error.__cause__)
    return Refusal(error.status_code, "bad-request", str(error.detail), headers=headers)


def _methods(scope: Mapping[str, Any]) -> str:
    """Return the methods that a path takes."""
    routes: Iterable[APIRoute] = scope["app"].state.routes
    fitting = [route for route in routes if route.matches(dict(scope))[0] is not Match.NONE]
    return ", ".join(sorted({method for route in fitting for method in route.methods or ()}))


def _unreadable(cause: BaseException) -> Refusal:
    """Say why a body is no JSON that can be read; what the parser says of it may hold some of it."""
    match cause:
        case UnicodeDecodeError():
            why = f"it is not UTF-8 at byte {cause.start}"
        case RecursionError():
            why = "it is nested too deep"
        case ValueError():
            why = "a number in it has too many digits"
        case _:
            why = "check it and its Content-Type"
    fault = FieldFault(field="body", kind="bytes", message=f"the body cannot be read as JSON: {why}")
    return Refusal(400, "invalid-request", f"body: {fault.message}", errors=[fault])
