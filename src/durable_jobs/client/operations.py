"""What a client can do, each described once for both clients.

Every description takes the client's options and returns a flow: see `durable_jobs.client.asking`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

import httpx
from pydantic import BaseModel, ValidationError

from durable_jobs.api.models import (
    Configuration,
    JobChain,
    JobList,
    JobStatus,
    ListedJob,
    PausedThing,
    Purgeable,
    Purged,
    RedisHealth,
    Stats,
    SubmittedJob,
    Workers,
)
from durable_jobs.client.asking import Call, Emit, Flow, Options, Until, ask
from durable_jobs.client.errors import stranger
from durable_jobs.errors import JobNotFound
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

M = TypeVar("M", bound=BaseModel)
JobId = UUID | str
Since = datetime | timedelta
Kind = Literal["queue", "type"]

LOOK = timedelta(seconds=65)
PURGE = timedelta(seconds=130)


def submit(
    options: Options,
    type: str,  # noqa: A002 -- as in durable_jobs.register_job
    data: Mapping[str, Any] | BaseModel | None = None,
    *,
    idempotency_key: str | None = None,
    correlation_id: str | None = None,
    priority: int = 0,
    run_at: datetime | None = None,
) -> Flow[SubmittedJob]:
    """Submit a job and return its id and state; it waits for no worker.

    Without a key of yours one is made, so that a submission whose answer is lost is repeated and still makes
    one job.

    Raises:
        UnknownJobType, InvalidPayload, PayloadTooLarge, BadInput: the request cannot be right.
        IdempotencyConflict: the key is used by another request.
        RemoteQueueFull, RateLimited: refused for now, and for longer than the client's patience.
        ApiUnavailable: no answer in time; asking again with the same key does no harm.
    """
    body: dict[str, Any] = {"type": type, "data": _data(data), "priority": priority}
    if correlation_id is not None:
        body["correlationId"] = correlation_id
    if run_at is not None:
        body["runAt"] = run_at.isoformat()
    # In the body: a header takes less than what a key may be.
    body["idempotencyKey"] = str(uuid4()) if idempotency_key is None else idempotency_key
    return _read(options, SubmittedJob, Call("POST", "/jobs", json=body, repeatable=True))


def get(options: Options, job_id: JobId) -> Flow[Job]:
    """Return a job with its payload and its result.

    Raises:
        JobNotFound: there is none in the token's tenant.
    """
    return _read(options, Job, _get(f"/jobs/{id_of(job_id)}"))


def status(options: Options, job_id: JobId) -> Flow[JobStatus]:
    """Return how a job stands: state, progress, reason, and which job of its chain has the say now."""
    return _read(options, JobStatus, _get(f"/jobs/{id_of(job_id)}/status"))


def chain(options: Options, job_id: JobId) -> Flow[JobChain]:
    """Return the whole story of a job: every attempt, and what was resubmitted from or as it."""
    return _read(options, JobChain, _get(f"/jobs/{id_of(job_id)}/chain"))


def list_jobs(
    options: Options,
    *,
    states: Iterable[JobState | str] = (),
    job_type: str | None = None,
    queue: str | None = None,
    since: Since | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Flow[JobList]:
    """Return a page of jobs, newest first, without payloads and results; `next_cursor` begins the next one."""
    asked = [("state", str(state)) for state in states]
    asked += _given(type=job_type, queue=queue, since=_since(since), limit=limit, cursor=cursor)
    return _read(options, JobList, _get("/jobs", *asked))


def failed(
    options: Options,
    *,
    retryable: bool | None = None,
    job_type: str | None = None,
    since: Since | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Flow[JobList]:
    """Return a page of failed jobs, those that failed last first; with `retryable`, what can be retried now."""
    wanted = None if retryable is None else str(retryable).lower()
    asked = _given(retryable=wanted, job_type=job_type, since=_since(since), limit=limit, cursor=cursor)
    return _read(options, JobList, _get("/jobs/failed", *asked))


def each_job(
    options: Options,
    *,
    states: Iterable[JobState | str] = (),
    job_type: str | None = None,
    queue: str | None = None,
    since: Since | None = None,
    page: int = 200,
) -> Flow[None]:
    """Give every job that fits, newest first, page after page."""
    wanted = list(states)

    def read(cursor: str | None) -> Flow[JobList]:
        return list_jobs(
            options, states=wanted, job_type=job_type, queue=queue, since=since, limit=page, cursor=cursor
        )

    return _pages(read)


def each_failed(
    options: Options,
    *,
    retryable: bool | None = None,
    job_type: str | None = None,
    since: Since | None = None,
    page: int = 200,
) -> Flow[None]:
    """Give every failed job that fits, page after page."""

    def read(cursor: str | None) -> Flow[JobList]:
        return failed(options, retryable=retryable, job_type=job_type, since=since, limit=page, cursor=cursor)

    return _pages(read)


def retry(options: Options, job_id: JobId) -> Flow[ListedJob]:
    """Make the one retry of a failed job and return it; asking again returns the same.

    Raises:
        NotAllowed: it is not FAILED, not retryable, or has had all its retries.
    """
    # Exactly one retry of a job is ever made, so repeating is harmless.
    return _read(options, ListedJob, Call("POST", f"/jobs/{id_of(job_id)}/retry", repeatable=True))


def cancel(options: Options, job_id: JobId) -> Flow[ListedJob]:
    """Cancel a waiting or failed job; a running one is asked to stop and is still RUNNING in the answer.

    Raises:
        NotAllowed: it has ended.
    """
    return _read(options, ListedJob, Call("POST", f"/jobs/{id_of(job_id)}/cancel"))


def resubmit(options: Options, job_id: JobId) -> Flow[ListedJob]:
    """Submit a failed or abandoned job anew, with all its retries, and return the new job.

    Raises:
        NotAllowed: it is neither FAILED nor ABANDONED.
    """
    return _read(options, ListedJob, Call("POST", f"/jobs/{id_of(job_id)}/resubmit"))


def pause(options: Options, kind: Kind, name: str) -> Flow[PausedThing]:
    """Hold a queue or a job type back, for all tenants; running jobs go on."""
    return _read(options, PausedThing, Call("POST", f"/{kind}s/{_part(name)}/pause", repeatable=True))


def resume(options: Options, kind: Kind, name: str) -> Flow[PausedThing]:
    """Let a paused queue or job type go on.

    Raises:
        NotAllowed: it is not paused.
    """
    return _read(options, PausedThing, Call("POST", f"/{kind}s/{_part(name)}/resume"))


def stats(options: Options) -> Flow[Stats]:
    """Return the figures of the token's tenant."""
    return _read(options, Stats, _get("/jobs/stats"))


def config(options: Options) -> Flow[Configuration]:
    """Return queues, job types with the schemas of their payloads, and policies."""
    return _read(options, Configuration, _get("/jobs/config"))


def workers(options: Options) -> Flow[Workers]:
    """Return who is on duty; `healthy` is False when nobody claims jobs."""
    call = Call("GET", "/health/workers", repeatable=True, tells_with=frozenset({503}))
    return _read(options, Workers, call)


def redis(options: Options) -> Flow[RedisHealth]:
    """Look at the API's Redis now; `healthy` is False when a check failed."""
    call = Call("GET", "/health/redis", repeatable=True, tells_with=frozenset({503}))
    return _read(options, RedisHealth, call)


def purgeable(options: Options, *, older_than: timedelta | None = None) -> Flow[Purgeable]:
    """Return what a purge of the token's tenant would take now."""
    call = _get("/jobs/purgeable", *_given(olderThan=_length(older_than)), attempt=LOOK)
    return _read(options, Purgeable, call)


def purge(
    options: Options,
    target: Literal["db", "redis"] = "db",
    *,
    older_than: timedelta | None = None,
    dry_run: bool = False,
) -> Flow[Purged]:
    """Purge what is over its time, and return what went.

    Raises:
        PurgeUnderWay, PurgeRefused, RetentionViolated: see `durable-jobs purge`.
    """
    asked = _given(target=target, olderThan=_length(older_than), dryRun=str(dry_run).lower())
    return _read(options, Purged, Call("DELETE", "/jobs/purge", tuple(asked), attempt=PURGE))


def _read(options: Options, model: type[M], call: Call) -> Flow[M]:
    response: httpx.Response = yield from ask(call, Until.after(options.patience))
    return parsed(model, response)


def parsed(model: type[M], response: httpx.Response) -> M:
    """Read an answer; what a newer API tells besides is left out.

    Raises:
        ApiProblem: it is not an answer of the API.
    """
    try:
        return model.model_validate_json(response.content, extra="ignore")
    except ValidationError:
        # Without its text, which may hold payloads.
        raise stranger(response) from None


def _pages(read: Callable[[str | None], Flow[JobList]]) -> Flow[None]:
    cursor: str | None = None
    while True:
        page: JobList = yield from read(cursor)
        for job in page.jobs:
            yield Emit(job)
        cursor = page.next_cursor
        if cursor is None:
            return


def _get(path: str, *params: tuple[str, str], **more: Any) -> Call:
    return Call("GET", path, params, repeatable=True, **more)


def _data(data: Mapping[str, Any] | BaseModel | None) -> Any:
    if isinstance(data, BaseModel):
        return data.model_dump(mode="json", by_alias=True)
    return {} if data is None else data


def id_of(job_id: JobId) -> str:
    """Return an id as a part of a path.

    Raises:
        JobNotFound: it is no UUID, so it names no job.
    """
    try:
        return str(UUID(str(job_id)))
    except ValueError as error:
        raise JobNotFound(f"no job {str(job_id)[:60]!r}: ids of jobs are UUIDs") from error


def _part(name: str) -> str:
    return quote(name, safe="")


def _given(**asked: object) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in asked.items() if value is not None]


def _since(since: Since | None) -> str | None:
    return since.isoformat() if isinstance(since, datetime) else _length(since)


def _length(length: timedelta | None) -> str | None:
    return None if length is None else f"{length.total_seconds():f}s"
