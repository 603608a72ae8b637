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
from durable_jobs.stores.postgres.statements import REGISTER, read_registered, refused, register_params
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
        tenant = required_tenant()
        params = register_params(tenant, jobs)
        with _refusals(jobs):
            if isinstance(self._connection, psycopg.AsyncConnection):
                async with self._connection.cursor(row_factory=tuple_row) as cursor:
                    rows: Sequence[Any] = await (await cursor.execute(REGISTER, params)).fetchall()
            else:
                rows = _read((await self._connection.execute(_REGISTER, params)).all())
        return read_registered(tenant, jobs, rows)


class SyncStoreWithin:
    """Registers through a sync connection of the caller."""

    def __init__(self, connection: Connection | Session | psycopg.Connection[Any]) -> None:
        """Nothing is sent yet."""
        self._connection = connection

    def register_idempotent(self, jobs: Sequence[NewJob]) -> list[Registered]:
        """Insert requests of one type; see `JobsStore.register_idempotent`."""
        tenant = required_tenant()
        params = register_params(tenant, jobs)
        with _refusals(jobs):
            if isinstance(self._connection, psycopg.Connection):
                with self._connection.cursor(row_factory=tuple_row) as cursor:
                    rows: Sequence[Any] = cursor.execute(REGISTER, params).fetchall()
            else:
                rows = _read(self._connection.execute(_REGISTER, params).all())
        return read_registered(tenant, jobs, rows)


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
