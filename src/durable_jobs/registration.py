"""The one entry point for every job: validate, serialise, insert.

It waits for no worker and needs no Prefect server. What is stored is the complete command, so that
a replay needs nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from uuid_utils.compat import uuid7

from durable_jobs import payloads
from durable_jobs.ahead import Ahead
from durable_jobs.errors import BadInput, DurableJobsError, IdempotencyConflict
from durable_jobs.jobs import Job, NewJob
from durable_jobs.payloads import Data
from durable_jobs.registry import Registry
from durable_jobs.runtime import current_runtime
from durable_jobs.settings import Settings
from durable_jobs.stores.protocols import Registered
from durable_jobs.tenants import DEFAULT_TENANT, current_tenant, job_tenant_scope


class Registers(Protocol):
    """Anything that registers: a store, or a store within the caller's transaction."""

    async def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type; see `JobsStore.register_idempotent`."""
        ...


MAX_KEY = 255
MAX_BULK = 1_000
"""Requests in one transaction, all or nothing."""
YIELD_EVERY = 100
"""Requests validated before other tasks of the event loop get their turn: one or two milliseconds."""


async def register_job(
    type: str,  # noqa: A002 -- the name people know from the HTTP API
    data: Data,
    *,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    connection: Any = None,
) -> Job:
    """Register one job and return it; an idempotency key that is known returns its chain's current job.

    Args:
        type: name of a declared job type.
        data: the payload's model, a mapping, or JSON text.
        idempotency_key: makes a repeated registration return the same job; unique per tenant.
        correlation_id: any text, to find related work.
        priority: -100 to 100, higher first.
        run_at: not before this time (aware).
        connection: an SQLAlchemy AsyncConnection or AsyncSession, or a psycopg AsyncConnection: the job
            then exists exactly if the caller's transaction commits. A refusal aborts that transaction.

    Raises:
        UnknownJobType, InvalidPayload, PayloadTooLarge, BadInput: the request cannot be right.
        IdempotencyConflict: the key is used by another request.
        QueueFull: the queue holds as many waiting jobs as it may.
        StoreUnavailable: the database does not answer; nothing was registered.
    """
    runtime = current_runtime()
    job = prepare(
        runtime.registry,
        runtime.settings,
        type,
        data,
        idempotency_key=idempotency_key,
        correlation_id=correlation_id,
        priority=priority,
        run_at=run_at,
    )
    store = await runtime.store() if connection is None else runtime.store_within(connection)
    return (await register_all(store, [job]))[0].job


async def register_jobs(
    type: str,  # noqa: A002 -- as in register_job
    data: Iterable[Data],
    *,
    priority: int = 0,
    run_at: datetime | None = None,
    correlation_id: str | None = None,
    connection: Any = None,
) -> list[Job]:
    """Register many jobs of one type, all or nothing for each 1,000; see `register_job`.

    Raises:
        BadInput: with the position of the request that cannot be right; of its thousand none is registered.
    """
    runtime = current_runtime()
    store = await runtime.store() if connection is None else runtime.store_within(connection)
    jobs: list[Job] = []
    # The next thousand is validated while the database writes this one.
    async with Ahead[list[Registered]]() as writing:
        for first, chunk in chunked(data):
            prepared: list[NewJob] = []
            for start in range(0, len(chunk), YIELD_EVERY):
                prepared += prepare_many(
                    runtime.registry,
                    runtime.settings,
                    type,
                    chunk[start : start + YIELD_EVERY],
                    first=first + start,
                    priority=priority,
                    run_at=run_at,
                    correlation_id=correlation_id,
                )
                await asyncio.sleep(0)
            jobs += [registered.job for registered in await writing.result() or ()]
            writing.start(register_all(store, prepared))
        jobs += [registered.job for registered in await writing.result() or ()]
    return jobs


async def register_all(store: Registers, jobs: Sequence[NewJob]) -> list[Registered]:
    """Insert prepared requests of one type in the tenant's scope, `default` when none is open.

    Raises:
        IdempotencyConflict, QueueFull, StoreUnavailable: nothing was registered.
    """
    if current_tenant() is None:
        with job_tenant_scope(DEFAULT_TENANT):
            return await register_all(store, jobs)
    if all(job.idempotency_key is None for job in jobs):
        return await store.register_idempotent(jobs)
    to_insert, positions = distinct(jobs)
    return merged(await store.register_idempotent(to_insert), positions)


def prepare(
    registry: Registry,
    settings: Settings,
    type_name: str,
    data: Data,
    *,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
    submitted_by: str | None = None,
) -> NewJob:
    """Validate one request; nothing is stored yet.

    Raises:
        UnknownJobType, InvalidPayload, PayloadTooLarge, BadInput: naming the field and the value.
    """
    make = _preparer(
        registry, settings, type_name, idempotency_key, correlation_id, priority, run_at, submitted_by
    )
    return make(data)


def _preparer(
    registry: Registry,
    settings: Settings,
    type_name: str,
    idempotency_key: str | None,
    correlation_id: str | None,
    priority: int,
    run_at: datetime | None,
    submitted_by: str | None,
) -> Callable[[Data], NewJob]:
    """Check what many requests share, once, and return what makes each of them."""
    declared = registry.job_type(type_name)
    queue = registry.queue(declared.queue)
    _check_options(idempotency_key, correlation_id, priority)
    run_at = None if run_at is None else _in_utc(run_at)
    max_bytes, max_depth = settings.max_payload_bytes, settings.max_payload_depth

    def make(data: Data) -> NewJob:
        stored = payloads.store(declared, data, max_bytes=max_bytes, max_depth=max_depth)
        return NewJob(
            uuid7(),
            declared.name,
            queue.name,
            queue.max_pending,
            stored.text,
            declared.version,
            stored.hash,
            declared.max_retries,
            declared.retryable,
            declared.timeout,
            priority,
            run_at,
            idempotency_key,
            correlation_id,
            submitted_by,
        )

    return make


def prepare_many(
    registry: Registry,
    settings: Settings,
    type_name: str,
    data: Sequence[Data],
    *,
    first: int = 0,
    priority: int = 0,
    run_at: datetime | None = None,
    correlation_id: str | None = None,
) -> list[NewJob]:
    """Validate many requests of one type; an error tells the position of its request.

    Raises:
        BadInput: naming the position, counted from 1.
    """
    prepared: list[NewJob] = []
    if not data:
        return prepared
    try:
        make = _preparer(registry, settings, type_name, None, correlation_id, priority, run_at, None)
        for one in data:
            prepared.append(make(one))  # noqa: PERF401 -- its length tells which one was refused
    except DurableJobsError as error:
        raise type(error)(f"request {first + len(prepared) + 1}: {error}") from error
    return prepared


def chunked(data: Iterable[Data]) -> Iterable[tuple[int, list[Data]]]:
    """Cut into statements, each with the position of its first request."""
    chunk: list[Data] = []
    first = 0
    for one in data:
        chunk.append(one)
        if len(chunk) == MAX_BULK:
            yield first, chunk
            first, chunk = first + MAX_BULK, []
    if chunk:
        yield first, chunk


def distinct(jobs: Sequence[NewJob]) -> tuple[list[NewJob], list[int]]:
    """Leave out repetitions of a key, and tell for each request where its answer is."""
    kept: list[NewJob] = []
    by_key: dict[str, int] = {}
    positions = []
    for job in jobs:
        key = job.idempotency_key
        if key is not None and key in by_key:
            if kept[by_key[key]].payload_hash != job.payload_hash:
                raise IdempotencyConflict(
                    f"idempotency key {key!r} is given to two different requests of this call;"
                    " use a new key for a new request"
                )
            positions.append(by_key[key])
            continue
        if key is not None:
            by_key[key] = len(kept)
        positions.append(len(kept))
        kept.append(job)
    return kept, positions


def merged(registered: Sequence[Registered], positions: Sequence[int]) -> list[Registered]:
    """Return one answer for each request; a repetition did not create the job."""
    seen: set[int] = set()
    answers = []
    for position in positions:
        known = registered[position]
        answers.append(Registered(known.job, known.created and position not in seen))
        seen.add(position)
    return answers


def _in_utc(run_at: datetime) -> datetime:
    """Return the same moment as the store will tell it."""
    if run_at.tzinfo is None:
        raise BadInput(f"run_at {run_at.isoformat()}: it has no time zone; use an aware datetime")
    try:
        return run_at.astimezone(UTC)
    except OverflowError as error:
        raise BadInput(f"run_at {run_at.isoformat()}: it is out of the range of times in UTC") from error


def _check_options(idempotency_key: str | None, correlation_id: str | None, priority: int) -> None:
    for name, value in (("idempotency_key", idempotency_key), ("correlation_id", correlation_id)):
        if value is not None and (
            not 1 <= len(value) <= MAX_KEY or "\x00" in value or not value.isprintable()
        ):
            raise BadInput(f"{name} {value[:40]!r}: it must have 1 to {MAX_KEY} printable characters")
    if not -100 <= priority <= 100:
        raise BadInput(f"priority {priority}: it must be between -100 and 100")
