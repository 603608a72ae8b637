"""The statements that call the database's functions, and how their rows are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic_core import from_json

from durable_jobs.errors import IdempotencyConflict, PayloadTooLarge, QueueFull, StoreUnavailable
from durable_jobs.jobs import ClaimedJob, Job, NewJob
from durable_jobs.states import JobState
from durable_jobs.stores.postgres.database import TOO_MUCH
from durable_jobs.stores.protocols import NewEvent, Registered
from durable_jobs.texts import storable_json
from durable_jobs.urls import first_line

REGISTER = (
    "SELECT n, at, existing FROM register_jobs("
    "%(tenant)s, %(type)s::jsonb, %(jobs)s::jsonb, %(keyed)s::boolean, %(now)s::timestamptz)"
)
_CLAIMED = (
    "SELECT job_id, claim_token, tenant_id, job_type, queue, payload::text, payload_version, retry_count,"
    " max_retries, root_job_id, correlation_id, deadline_at, timeout, claim_order, run_at FROM "
)
CLAIM = _CLAIMED + (
    "claim_jobs(%(executor)s, %(queue)s, %(limit)s, %(after)s, %(fronts)s::jsonb, %(now)s::timestamptz)"
)
CLAIM_ONE = _CLAIMED + "claim_job(%(executor)s, %(tenant)s, %(job_id)s, %(now)s::timestamptz)"
FINISH = "SELECT job_id, why FROM finish_jobs(%(tenants)s::text[], %(outcomes)s::jsonb, %(now)s::timestamptz)"

PURGED_MEANWHILE = "DJ003"
"""The job that a key named went while the registration ran; asking again inserts it anew."""

MOST_TEXT = 32_000_000
"""Characters of payload in one statement: a jsonb has 256 MB at most, a character up to four bytes."""

RECORD_EVENTS = "SELECT record_events(%(events)s::jsonb)"


def event_params(events: Sequence[NewEvent]) -> dict[str, Any]:
    """Return the parameters of RECORD_EVENTS."""
    documents = [
        {
            "tenant_id": event.tenant_id,
            "event": event.event,
            "job_id": None if event.job_id is None else str(event.job_id),
            "severity": event.severity,
            "payload": dict(event.payload),
        }
        for event in events
    ]
    return {"events": storable_json(documents)}


def in_parts(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Cut a registration into what one statement can take; nearly always that is all of it."""
    if len(jobs) == 1:
        return [jobs]
    parts: list[Sequence[NewJob]] = []
    start, size = 0, 0
    for n, job in enumerate(jobs):
        size += len(job.payload)
        if size > MOST_TEXT and n > start:
            parts.append(jobs[start:n])
            start, size = n, len(job.payload)
    return [*parts, jobs[start:]]


def register_params(tenant: str, jobs: Sequence[NewJob]) -> dict[str, Any]:
    """Return the parameters of REGISTER for requests of one type with distinct keys."""
    first = jobs[0]
    shared = {
        "job_type": first.job_type,
        "queue": first.queue,
        "max_pending": first.max_pending,
        "payload_version": first.payload_version,
        "max_retries": first.max_retries,
        "retryable": first.retryable,
        "timeout": f"{first.timeout.total_seconds()} s",
        "submitted_by": first.submitted_by,
    }
    return {
        "tenant": tenant,
        "type": json.dumps(shared),
        "jobs": "[" + ",".join(_request(n, job) for n, job in enumerate(jobs)) + "]",
        "keyed": any(job.idempotency_key is not None for job in jobs),
        "now": None,
    }


def _request(n: int, job: NewJob) -> str:
    extra = ""
    if job.run_at is not None:
        extra += f',"run_at":"{job.run_at.isoformat()}"'
    if job.idempotency_key is not None:
        extra += f',"idempotency_key":{json.dumps(job.idempotency_key)}'
    if job.correlation_id is not None:
        extra += f',"correlation_id":{json.dumps(job.correlation_id)}'
    # The payload is JSON already.
    return (
        f'{{"n":{n},"job_id":"{job.job_id}","priority":{job.priority},'
        f'"payload_hash":"{job.payload_hash}","payload":{job.payload}{extra}}}'
    )


def read_registered(
    tenant: str, jobs: Sequence[NewJob], rows: Sequence[tuple[int | None, datetime, Any]]
) -> list[Registered]:
    """Return the answer for each request, in order."""
    now = rows[0][1]
    known = {n: existing for n, _, existing in rows[1:] if n is not None}
    shared = _shared(tenant, jobs[0], now)
    return [
        Registered(Job.model_validate(known[n]), False)
        if n in known
        else Registered(_new_row(shared, job, now), True)
        for n, job in enumerate(jobs)
    ]


def _shared(tenant: str, job: NewJob, now: datetime) -> dict[str, Any]:
    """Return what all rows of one registration share; the requests of a call are of one type."""
    return dict.fromkeys(_FIELDS) | {
        "tenant_id": tenant,
        "job_type": job.job_type,
        "queue": job.queue,
        "state": JobState.PENDING,
        "payload_version": job.payload_version,
        "submitted_by": job.submitted_by,
        "retryable": job.retryable,
        "retry_count": 0,
        "max_retries": job.max_retries,
        "claim_count": 0,
        "crash_count": 0,
        "dispatch_count": 0,
        "created_at": now,
        "updated_at": now,
    }


_FIELDS = tuple(Job.model_fields)
_ALL_SET = set(_FIELDS)


def _new_row(shared: dict[str, Any], job: NewJob, now: datetime) -> Job:
    """Return the row as pydantic would make it without validation, at a quarter of the time.

    What the database was given needs no second look. The set of given fields is one for all rows: a row
    is frozen, and a copy takes a copy of it.
    """
    row = Job.__new__(Job)
    values = {
        **shared,
        "job_id": job.job_id,
        "root_job_id": job.job_id,
        "priority": job.priority,
        "run_at": job.run_at or now,
        "payload": from_json(job.payload),
        "idempotency_key": job.idempotency_key,
        "correlation_id": job.correlation_id,
    }
    object.__setattr__(row, "__dict__", values)
    object.__setattr__(row, "__pydantic_fields_set__", _ALL_SET)
    object.__setattr__(row, "__pydantic_extra__", None)
    object.__setattr__(row, "__pydantic_private__", None)
    return row


def refused(error: BaseException, jobs: Sequence[NewJob]) -> Exception | None:
    """Return our error when the database refused a registration; also through asyncpg or psycopg2."""
    code = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    if code == "DJ002":
        return QueueFull(jobs[0].queue, jobs[0].max_pending or 0, len(jobs))
    if code == "DJ001":
        diagnostics = getattr(error, "diag", None)
        position = getattr(diagnostics, "message_detail", None) or getattr(error, "detail", None) or 0
        return IdempotencyConflict(
            f"idempotency key {jobs[int(position)].idempotency_key!r}: {first_line(error)},"
            " which has another type or other data; use a new key for a new request"
        )
    if code is not None and code.startswith(TOO_MUCH):
        return PayloadTooLarge(
            f"a payload of {jobs[0].job_type} is more than Postgres can hold ({first_line(error)});"
            " store the data elsewhere and submit a reference to it"
        )
    if code == PURGED_MEANWHILE:
        return StoreUnavailable("the job of a known idempotency key was purged meanwhile; register again")
    return None


def read_claimed(row: Sequence[Any]) -> ClaimedJob:
    """Return a claimed job from a row of CLAIM."""
    return ClaimedJob._make(row[:13])
