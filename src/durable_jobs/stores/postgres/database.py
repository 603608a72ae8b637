"""Calls to Postgres: pooled, bounded in time, with errors that say what to do.

Every statement is one function call in autocommit, so one round trip and no transaction left open.
A call that does not answer in time is given up at once; its connection is closed behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from durable_jobs.errors import InvalidSettings, SchemaOutdated, StoreUnavailable
from durable_jobs.urls import first_line, libpq_url

T = TypeVar("T")

CONNECT_TIMEOUT_S = 5
# A connection whose peer has vanished is found within about ten seconds, also without traffic.
_KEEPALIVE = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
_AWAY = {
    "25006": "it accepts no writes (read-only)",
    "53300": "it has no connection left",
    "57P01": "it is shutting down",
    "57P02": "it crashed and recovers",
    "57P03": "it is starting up",
    "57014": "it cancelled the statement",
    "40P01": "two transactions waited for each other and it ended this one; try again",
    "40001": "another transaction changed the same rows; try again",
}
_OUTDATED = {"42P01", "42883", "42703"}
_NO_RIGHTS = "42501"
TOO_MUCH = "54"
"""Class of what is more than a statement can hold: asking again unchanged never helps."""


def connection_options(url: str, *, prepared_statements: bool) -> dict[str, Any]:
    """Return the keyword arguments of every connection the product opens."""
    return {
        "conninfo": libpq_url(url),
        "autocommit": True,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "prepare_threshold": 5 if prepared_statements else None,
        "application_name": "durable-jobs",
        **_KEEPALIVE,
    }


class Database:
    """A pool of connections with one way to call a function."""

    def __init__(self, url: str, *, timeout: timedelta, pool_size: int, prepared_statements: bool) -> None:
        """Prepare the pool; nothing is connected yet."""
        self.options = connection_options(url, prepared_statements=prepared_statements)
        self.timeout = timeout
        self._timeout = timeout.total_seconds()
        options = dict(self.options)
        self._fault: psycopg.Error | None = None
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            options.pop("conninfo"),
            connection_class=self._connection_class(),
            kwargs=options,
            min_size=0,
            max_size=pool_size,
            max_idle=300,
            timeout=self._timeout,
            reconnect_timeout=1,
            open=False,
        )
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def open(self) -> None:
        """Allow connections."""
        await self._pool.open()

    async def close(self) -> None:
        """Close every connection."""
        for task in self._abandoned:
            task.cancel()
        await self._pool.close(timeout=1)

    async def fetch(
        self, statement: str, params: Mapping[str, Any], *, row_factory: Any = tuple_row
    ) -> list[Any]:
        """Run one statement in autocommit and return its rows.

        Raises:
            StoreUnavailable: no answer within the bound, or the database is away.
        """

        async def run(connection: AsyncConnection[Any]) -> list[Any]:
            async with connection.cursor(row_factory=row_factory) as cursor:
                await cursor.execute(statement, params)
                return await cursor.fetchall() if cursor.description else []

        return await self._bounded(run)

    async def in_transaction(self, work: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Run several statements in one transaction, under the same bound.

        Raises:
            StoreUnavailable: no answer within the bound, or the database is away.
        """

        async def run(connection: AsyncConnection[Any]) -> T:
            async with connection.transaction():
                return await work(connection)

        return await self._bounded(run)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        """Hold a transaction open for the block, without a bound; for locks only.

        Raises:
            StoreUnavailable: the database is away.
        """
        async with translated_errors(), self._pool.connection() as connection, connection.transaction():
            yield connection

    async def _bounded(self, run: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        # A task of its own: asyncio.timeout would wait for the driver to tidy up a dead connection.
        task = asyncio.create_task(self._with_connection(run))
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout)
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        if not done:
            self._abandon(task)
            why = f": {first_line(self._fault)}" if self._fault is not None else ""
            raise StoreUnavailable(
                f"the database did not answer within {self._timeout:g} s (DURABLE_JOBS_DATABASE_TIMEOUT){why}"
            )
        return task.result()

    def _connection_class(self) -> type[AsyncConnection[Any]]:
        """Return a connection that notes why the last attempt failed: the pool only says that it waited."""
        database = self

        class Connection(AsyncConnection[Any]):
            @classmethod
            async def connect(cls, *args: Any, **kwargs: Any) -> Self:
                try:
                    connection = await super().connect(*args, **kwargs)
                except psycopg.Error as error:
                    database._fault = error
                    raise
                database._fault = None
                return connection

        return Connection

    async def _with_connection(self, run: Callable[[AsyncConnection[Any]], Awaitable[T]]) -> T:
        async with translated_errors(), self._pool.connection() as connection:
            try:
                return await run(connection)
            except psycopg.OperationalError:
                # Whatever broke this connection broke its neighbours: find out now, not at
                # the cost of one failing call each.
                if connection.broken:
                    self._keep(asyncio.create_task(self._pool.check()))
                raise

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._keep(task)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()


@asynccontextmanager
async def translated_errors() -> AsyncIterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except (psycopg.Error, PoolTimeout, TimeoutError) as error:
        raise translate(error) from error


def translate(error: Exception) -> Exception:
    """Return our error for one of the driver's, or the error itself when it is a fault of ours."""
    code = getattr(error, "sqlstate", None)
    if code in _AWAY:
        return StoreUnavailable(f"the database is not usable now: {_AWAY[code]}")
    if code in _OUTDATED:
        return SchemaOutdated(
            f"the database lacks something this version needs ({first_line(error)});"
            " bring it up to date with `durable-jobs deploy` or `durable-jobs up`"
        )
    if code == _NO_RIGHTS:
        return InvalidSettings(
            f"the database role lacks a right ({first_line(error)}); use the URL with the role that"
            " `durable-jobs deploy` and `durable-jobs up` make (durable_jobs_app_<database>)"
        )
    if code is not None and code.startswith(TOO_MUCH):
        return error
    if isinstance(error, (psycopg.OperationalError, PoolTimeout, TimeoutError, psycopg.InterfaceError)):
        return StoreUnavailable(f"the database does not answer: {first_line(error)}")
    return error
