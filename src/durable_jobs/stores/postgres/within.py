"""Registration inside the caller's own transaction: the job exists exactly if that commits.

The connection decides how: SQLAlchemy (any driver, sync or async) or psycopg (sync or async).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from durable_jobs.errors import BadInput
from durable_jobs.jobs import NewJob
from durable_jobs.stores.postgres.database import translate
from durable_jobs.stores.postgres.statements import (
    REGISTER,
    in_parts,
    read_registered,
    refused,
    register_params,
)
from durable_jobs.stores.protocols import Registered
from durable_jobs.tenants import required_tenant

# The statement of REGISTER with parameters as SQLAlchemy names them, for any driver.
_REGISTER = text(
    "SELECT n, at, CAST(existing AS text) FROM register_jobs(CAST(:tenant AS text), CAST(:type AS jsonb),"
    " CAST(:jobs AS jsonb), CAST(:keyed AS boolean), CAST(:now AS timestamptz))"
)


class StoreWithin:
    """Registers through an async connection of the caller."""

    def __init__(self, connection: AsyncConnection | AsyncSession | psycopg.AsyncConnection[Any]) -> None:
        """Nothing is sent yet."""
        self._connection = connection

    async def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type; see `JobsStore.register_idempotent`."""
        tenant, parts = required_tenant(), in_parts(jobs)
        if len(parts) > 1 and isinstance(self._connection, psycopg.AsyncConnection):
            # It may be one in autocommit; otherwise this is a savepoint.
            async with self._connection.transaction():
                return await self.register_parts(tenant, parts)
        return await self.register_parts(tenant, parts)

    async def register_parts(self, tenant: str, parts: Sequence[Sequence[NewJob]]) -> list[Registered]:
        """Insert requests of one type, a statement for each part."""
        answers: list[Registered] = []
        for jobs in parts:
            with _refusals(jobs):
                answers += read_registered(tenant, jobs, await self._rows(register_params(tenant, jobs)))
        return answers

    async def _rows(self, params: dict[str, Any]) -> Sequence[Any]:
        if isinstance(self._connection, psycopg.AsyncConnection):
            async with self._connection.cursor(row_factory=tuple_row) as cursor:
                return await (await cursor.execute(REGISTER, params)).fetchall()
        return _read((await self._connection.execute(_REGISTER, params)).all())


class SyncStoreWithin:
    """Registers through a sync connection of the caller."""

    def __init__(self, connection: Connection | Session | psycopg.Connection[Any]) -> None:
        """Nothing is sent yet."""
        self._connection = connection

    def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type; see `JobsStore.register_idempotent`."""
        tenant, parts = required_tenant(), in_parts(jobs)
        if len(parts) > 1 and isinstance(self._connection, psycopg.Connection):
            with self._connection.transaction():
                return self._register_parts(tenant, parts)
        return self._register_parts(tenant, parts)

    def _register_parts(self, tenant: str, parts: Sequence[Sequence[NewJob]]) -> list[Registered]:
        answers: list[Registered] = []
        for jobs in parts:
            with _refusals(jobs):
                answers += read_registered(tenant, jobs, self._rows(register_params(tenant, jobs)))
        return answers

    def _rows(self, params: dict[str, Any]) -> Sequence[Any]:
        if isinstance(self._connection, psycopg.Connection):
            with self._connection.cursor(row_factory=tuple_row) as cursor:
                return cursor.execute(REGISTER, params).fetchall()
        return _read(self._connection.execute(_REGISTER, params).all())


def within(connection: Any) -> StoreWithin:
    """Return a store for an async connection.

    Raises:
        BadInput: it is no connection that we know.
    """
    if isinstance(connection, (AsyncConnection, AsyncSession, psycopg.AsyncConnection)):
        return StoreWithin(connection)
    raise BadInput(
        f"connection is a {type(connection).__module__}.{type(connection).__qualname__}: use an SQLAlchemy"
        " AsyncConnection or AsyncSession, or a psycopg AsyncConnection; for a sync connection use"
        " durable_jobs.sync.register_job"
    )


def sync_within(connection: Any) -> SyncStoreWithin:
    """Return a store for a sync connection.

    Raises:
        BadInput: it is no connection that we know.
    """
    if isinstance(connection, (Connection, Session, psycopg.Connection)):
        return SyncStoreWithin(connection)
    raise BadInput(
        f"connection is a {type(connection).__module__}.{type(connection).__qualname__}: use an SQLAlchemy"
        " Connection or Session, or a psycopg Connection; for an async connection use"
        " durable_jobs.register_job"
    )


def _read(rows: Sequence[Any]) -> list[tuple[Any, Any, Any]]:
    return [(n, at, None if existing is None else json.loads(existing)) for n, at, existing in rows]


@contextmanager
def _refusals(jobs: Sequence[NewJob]) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise refused(error, jobs) or translate(error) from error
    except DBAPIError as error:
        if error.orig is None:
            raise
        raise refused(error.orig, jobs) or (translate(error.orig) if _is_ours(error) else error) from error


def _is_ours(error: DBAPIError) -> bool:
    return isinstance(error.orig, psycopg.Error)
