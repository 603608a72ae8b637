"""A store to attack, and the way to look behind it; emptied for every example."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg

from durable_jobs.stores.memory import InMemoryJobsStore
from durable_jobs.stores.postgres import PgJobsStore
from tests.conftest import AnyStore
from tests.support.cluster import Urls
from tests.support.probes import MemoryProbe, PgProbe, Probe
from tests.support.stores import open_store

T = TypeVar("T")


class World(Protocol):
    """What a machine works on."""

    store: AnyStore
    probe: Probe

    def run(self, work: Awaitable[T]) -> T:
        """Run one operation to its end."""
        ...

    def reset(self) -> None:
        """Begin with nothing."""
        ...


class MemoryWorld:
    """The store in memory; `kind` may be one with a planted fault."""

    def __init__(self, runner: asyncio.Runner, kind: type[InMemoryJobsStore] = InMemoryJobsStore) -> None:
        self._runner = runner
        self._kind = kind
        self.reset()

    def run(self, work: Any) -> Any:
        return self._runner.run(work, context=copy_context())

    def reset(self) -> None:
        self.store = self._kind()
        self.probe = MemoryProbe(self.store)


class PgWorld:
    """The store in Postgres, connected as the application's role."""

    def __init__(self, runner: asyncio.Runner, urls: Urls, owner: psycopg.Connection) -> None:
        self._runner = runner
        self._owner = owner
        self.store: PgJobsStore = open_store(urls.application, pool_size=4, timeout=timedelta(seconds=20))
        self.probe = PgProbe(owner)

    def run(self, work: Any) -> Any:
        return self._runner.run(work, context=copy_context())

    def reset(self) -> None:
        # A few rows are gone quicker by DELETE than by TRUNCATE.
        for table in (
            "job_history",
            "job_events",
            "job_effects",
            "job_executors",
            "queue_pending",
            "queue_pending_released",
            "paused",
        ):
            self._owner.execute(f"DELETE FROM {table}")


@contextmanager
def memory_world(kind: type[InMemoryJobsStore] = InMemoryJobsStore) -> Iterator[MemoryWorld]:
    """A world in memory."""
    with asyncio.Runner() as runner:
        yield MemoryWorld(runner, kind)


@contextmanager
def pg_world(urls: Urls) -> Iterator[PgWorld]:
    """A world in Postgres."""
    with psycopg.connect(urls.admin, autocommit=True) as owner, asyncio.Runner() as runner:
        world = PgWorld(runner, urls, owner)
        runner.run(world.store.open())
        yield world
        runner.run(world.store.close())
