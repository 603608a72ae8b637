"""The callers' connections, each with an open transaction, and how a letter is inserted through it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any

import psycopg
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

LETTER = "INSERT INTO letters (words) VALUES ('dear')"

AsyncOpen = Callable[[str], AbstractAsyncContextManager[Any]]
SyncOpen = Callable[[str], AbstractContextManager[Any]]


def with_driver(url: str, driver: str) -> str:
    return make_url(url).set(drivername=f"postgresql+{driver}").render_as_string(hide_password=False)


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def psycopg_async_autocommit(url: str) -> AsyncIterator[Any]:
    """With rows as dictionaries, as many have it."""
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row) as connection,  # type: ignore[arg-type]
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def sqlalchemy_async(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(with_driver(url, "psycopg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_asyncpg(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(with_driver(url, "asyncpg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(with_driver(url, "psycopg"), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@contextmanager
def psycopg_sync(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def psycopg_sync_dictionaries(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=dict_row) as connection:  # type: ignore[arg-type]
        yield connection


@contextmanager
def sqlalchemy_sync(url: str) -> Iterator[Any]:
    with create_engine(with_driver(url, "psycopg"), poolclass=NullPool).begin() as connection:
        yield connection


@contextmanager
def sqlalchemy_session(url: str) -> Iterator[Any]:
    engine = create_engine(with_driver(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session


ASYNC: dict[str, AsyncOpen] = {
    "psycopg": psycopg_async,
    "psycopg autocommit": psycopg_async_autocommit,
    "sqlalchemy": sqlalchemy_async,
    "sqlalchemy asyncpg": sqlalchemy_asyncpg,
    "sqlalchemy session": sqlalchemy_async_session,
}
SYNC: dict[str, SyncOpen] = {
    "psycopg": psycopg_sync,
    "psycopg dictionaries": psycopg_sync_dictionaries,
    "sqlalchemy": sqlalchemy_sync,
    "sqlalchemy session": sqlalchemy_session,
}


def statement(connection: Any) -> Any:
    """Return the insertion as this connection takes it."""
    return LETTER if isinstance(connection, (psycopg.Connection, psycopg.AsyncConnection)) else text(LETTER)
