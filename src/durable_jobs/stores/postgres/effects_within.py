"""Effects in the caller's own transaction: recorded with the effect itself, or not at all.

Invariant: the record and what the block does share one savepoint of the caller's transaction, and the
fence holds from the end of the block until that transaction ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from sqlalchemy import Connection, TextClause, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from durable_jobs.errors import BadInput
from durable_jobs.stores.postgres.database import translate
from durable_jobs.urls import first_line

ASYNC = (AsyncConnection, AsyncSession, psycopg.AsyncConnection)
SYNC = (Connection, Session, psycopg.Connection)

NAME = "SELECT set_config('durable_jobs.effect', CAST(%(reservation)s AS text), true)"
NAMED = "SELECT current_setting('durable_jobs.effect', true)"
_ELSEWHERE = {"42P01", "42703", "42883"}
_NO_RIGHT = "42501"
_AWAY = ("08", "53", "57")


class CallersConnection:
    """A connection of the caller, sync or async, SQLAlchemy's or psycopg's; a sync one never suspends."""

    def __init__(self, connection: Any, *, wants_async: bool) -> None:
        """Take the connection.

        Raises:
            BadInput: it is none that we know, or of the other kind.
        """
        if not isinstance(connection, ASYNC if wants_async else SYNC):
            kind, word = ("an Async", "async with") if wants_async else ("a ", "with")
            raise BadInput(
                f"connection is a {type(connection).__module__}.{type(connection).__qualname__}: `{word}"
                f" context.effect(...)` takes {kind}Connection or {kind}Session of SQLAlchemy, or {kind}Connection"
                " of psycopg"
            )
        self._connection: Any = connection
        self._is_async = wants_async
        self._savepoint: Any = None

    async def row(self, statement: str, params: Mapping[str, Any]) -> Any:
        """Run one statement in the caller's transaction and return its row.

        Raises:
            BadInput: the connection does not lead to the jobs, or its role may not use them.
            StoreUnavailable: the database does not answer.
        """
        with _translated():
            if isinstance(self._connection, psycopg.AsyncConnection):
                async with self._connection.cursor(row_factory=tuple_row) as cursor:
                    return await (await cursor.execute(statement, params)).fetchone()
            if isinstance(self._connection, psycopg.Connection):
                with self._connection.cursor(row_factory=tuple_row) as sync_cursor:
                    return sync_cursor.execute(statement, params).fetchone()
            result: Any = self._connection.execute(_named_parameters(statement), dict(params))
            return (await result if self._is_async else result).one()

    async def open(self, reservation: str) -> None:
        """Set a savepoint.

        Raises:
            BadInput: no transaction is open, so nothing would be recorded together.
        """
        await self.row(NAME, {"reservation": reservation})
        if (await self.row(NAMED, {}))[0] != reservation:
            raise BadInput(
                "connection commits every statement by itself (autocommit), so the effect and its record would not"
                " be one transaction: open one first, such as `async with connection.begin():`"
            )
        with _translated():
            nested = self._connection
            self._savepoint = (
                nested.transaction() if hasattr(nested, "transaction") else nested.begin_nested()
            )
            if self._is_async:
                await self._savepoint.__aenter__()
            else:
                self._savepoint.__enter__()

    async def close(self, error: BaseException | None) -> None:
        """Keep what happened since the savepoint, or undo it when there is an error."""
        savepoint, self._savepoint = self._savepoint, None
        if savepoint is None:
            return
        ended = (None, None, None) if error is None else (type(error), error, error.__traceback__)
        with _translated():
            if self._is_async:
                await savepoint.__aexit__(*ended)
            else:
                savepoint.__exit__(*ended)


@cache
def _named_parameters(statement: str) -> TextClause:
    return text(re.sub(r"%\((\w+)\)s", r":\1", statement))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code in _ELSEWHERE or code == _NO_RIGHT:
            raise BadInput(
                f"connection cannot record an effect ({first_line(cause)}): it must lead to the jobs' database, as"
                " a role that may use its tables; for another database leave connection away"
            ) from error
        away = code is None or code.startswith(_AWAY)
        if away and isinstance(cause, psycopg.Error) and (ours := translate(cause)) is not cause:
            raise ours from error
        # Of the caller's transaction, such as a serialization failure: the caller knows what to do.
        raise
