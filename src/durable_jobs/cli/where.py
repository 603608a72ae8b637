"""Where commands find the jobs: in the database, or behind an API. Commands do not know which it is.

The option --api-url wins; else the database, when one is configured; else DURABLE_JOBS_API_URL. So a shell with both,
which sourced the connection.env of `durable-jobs up`, works on the database.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeVar
from uuid import UUID

import typer

from durable_jobs.dead_letters.store import ChainEvent
from durable_jobs.errors import BadInput
from durable_jobs.jobs import Job
from durable_jobs.runtime import current_runtime
from durable_jobs.stores.protocols import JobFilter, Paused
from durable_jobs.tenants import DEFAULT_TENANT
from durable_jobs.written_times import Since

T = TypeVar("T")
Kind = Literal["queue", "type"]

URL_VARIABLE = "DURABLE_JOBS_API_URL"
INTERRUPTED = 130
THROUGH_THE_API = frozenset(
    {
        "cancel", "config", "get", "list", "pause", "purge", "purgeable", "redis", "resubmit", "resume",
        "retry", "submit", "workers",
    }
)  # fmt: skip
"""The commands that work with an API as well."""

_given_url: ContextVar[str | None] = ContextVar("durable_jobs_api_url", default=None)


class SubmitRequest(NamedTuple):
    """One job to be submitted; its data is JSON text."""

    job_type: str
    document: str
    idempotency_key: str | None
    correlation_id: str | None
    priority: int
    run_at: datetime | None


class PurgeRequest(NamedTuple):
    """What is to be purged; what is None is not said, and has its default."""

    dry_run: bool
    jobs: timedelta | None
    effects: timedelta | None
    redis: timedelta | None
    redis_prefix: str | None
    time_budget: timedelta | None
    tenants: Sequence[str] | None


class Names(NamedTuple):
    """The declared queues and job types."""

    queues: Collection[str]
    types: Collection[str]


class Jobs(Protocol):
    """What commands ask for, of one tenant."""

    async def submit(self, request: SubmitRequest) -> UUID:
        """Register a job and return its id."""
        ...

    async def get(self, job_id: UUID) -> Job:
        """Return a job."""
        ...

    async def chain(self, job_id: UUID) -> tuple[list[Job], list[ChainEvent]]:
        """Return every job of a chain, and what was told of them."""
        ...

    async def page(
        self, wanted: JobFilter, lately: Since, cursor: str | None, limit: int
    ) -> tuple[Sequence[Job], str | None]:
        """Return a page of jobs, newest first, and the cursor of the next one."""
        ...

    async def cancel(self, job_id: UUID) -> Job:
        """Cancel a job, or ask it to stop."""
        ...

    async def retry(self, job_id: UUID) -> Job:
        """Make the retry of a failed job, and return it."""
        ...

    async def resubmit(self, job_id: UUID) -> Job:
        """Submit a job anew, and return the new one."""
        ...

    async def names(self) -> Names:
        """Return what is declared."""
        ...

    async def paused(self) -> list[Paused]:
        """Return what is held back."""
        ...

    async def pause(self, kind: Kind, name: str) -> Paused:
        """Hold a queue or a type back."""
        ...

    async def resume(self, kind: Kind, name: str) -> None:
        """Let a queue or a type go on."""
        ...

    async def workers(self) -> list[dict[str, Any]]:
        """Return the executors as JSON shows them."""
        ...

    async def config(self) -> dict[str, Any]:
        """Return the configuration as JSON shows it."""
        ...

    async def purgeable(
        self, jobs: timedelta, effects: timedelta | None, tenants: Sequence[str] | None
    ) -> dict[str, Any]:
        """Return what a purge would take, as JSON shows it."""
        ...

    async def purge(self, request: PurgeRequest) -> dict[str, Any]:
        """Purge what is over its time, prove it, and return what went, as JSON shows it."""
        ...


def choose(url: str | None, command: str | None) -> None:
    """Take note of --api-url before a command.

    Raises:
        BadInput: the command works on the database only.
    """
    _given_url.set(url)
    if url is not None and command is not None and command not in THROUGH_THE_API:
        raise BadInput(
            f"`durable-jobs {command}` does not work through an API: leave --api-url out, and run it where"
            f" DURABLE_JOBS_DATABASE_URL is set. Through an API there are {', '.join(sorted(THROUGH_THE_API))}"
        )


def remote_url() -> str | None:
    """Return the address of the API that commands use, or None when they use the database."""
    if (given := _given_url.get()) is not None:
        return given
    known = os.environ.get(URL_VARIABLE)
    return known if known and current_runtime().settings.database_url is None else None


def require_database(what: str) -> None:
    """Refuse what only the database can do.

    Raises:
        BadInput: the command uses an API.
    """
    if remote_url() is not None:
        raise BadInput(
            f"{what} does not work through an API: leave --api-url out, and run it where"
            " DURABLE_JOBS_DATABASE_URL is set"
        )


def check_type(job_type: str) -> None:
    """Tell early that a type does not exist, where that is known here; an API tells it by itself.

    Raises:
        UnknownJobType: it is not declared.
    """
    if remote_url() is None:
        from durable_jobs.cli.running import declared

        declared(current_runtime()).job_type(job_type)


def with_jobs(tenant: str, work: Callable[[Jobs], Awaitable[T]]) -> T:
    """Do the work with the jobs of a tenant, wherever they are.

    Raises:
        DurableJobsError: what the work raises, or the jobs cannot be reached.
        typer.Exit: Ctrl-C, or what the work raises to end with a code.
    """
    from durable_jobs.cli.running import quiet_logs

    async def opened() -> T:
        async with _opened(tenant) as jobs:
            return await work(jobs)

    quiet_logs(current_runtime().settings)
    try:
        return asyncio.run(opened())
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def _opened(tenant: str) -> AbstractAsyncContextManager[Jobs]:
    url = remote_url()
    if url is None:
        from durable_jobs.cli.jobs_in_database import jobs_in_database

        return jobs_in_database(tenant)
    if tenant != DEFAULT_TENANT:
        raise BadInput("--tenant: through an API the tenant is the token's; leave the option out")
    from durable_jobs.cli.jobs_behind_api import jobs_behind_api  # httpx loads slowly

    return jobs_behind_api(url)
