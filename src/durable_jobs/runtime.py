"""What a program needs once: its settings, its declared types, and a store for each event loop."""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from durable_jobs.loading import load_registry
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore

if TYPE_CHECKING:
    from durable_jobs.stores.postgres.within import StoreWithin


class Runtime:
    """The settings of this process and what follows from them."""

    def __init__(self, settings: Settings) -> None:
        """Nothing is loaded or connected yet."""
        self.settings = settings
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, PgJobsStore] = WeakKeyDictionary()

    @cached_property
    def registry(self) -> Registry:
        """The declared types and queues; loads the modules at first use."""
        return load_registry(self.settings.modules)

    async def store(self) -> PgJobsStore:
        """Return the store of this event loop; the first call proves that the database is right.

        Raises:
            StoreUnavailable, SchemaOutdated, UnsafeDatabaseRole, InvalidSettings.
        """
        loop = asyncio.get_running_loop()
        store = self._stores.get(loop)
        if store is None:
            store = PgJobsStore.from_settings(self.settings)
            try:
                await store.open(environment=self.settings.environment)
            except BaseException:
                await store.close()
                raise
            # Two first calls at once: one store is kept, the other closed.
            kept = self._stores.setdefault(loop, store)
            if kept is not store:
                await store.close()
            store = kept
        return store

    async def close(self) -> None:
        """Close this event loop's store."""
        store = self._stores.pop(asyncio.get_running_loop(), None)
        if store is not None:
            await store.close()

    def store_within(self, connection: Any) -> StoreWithin:
        """Return a store that registers inside the caller's transaction."""
        from durable_jobs.stores.postgres.within import within  # SQLAlchemy loads slowly

        return within(connection)


_installed: Runtime | None = None


def install(runtime: Runtime) -> Runtime:
    """Make this the process's runtime: its settings did not come from the environment alone."""
    global _installed
    _installed = runtime
    return runtime


def current_runtime() -> Runtime:
    """Return the process's runtime, read from its environment at first use.

    Raises:
        InvalidSettings: a setting has a value that cannot work.
    """
    return _installed or install(Runtime(Settings.load()))
