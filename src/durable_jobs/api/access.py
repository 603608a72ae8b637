"""The application's way to the store: opened when it is first needed, proved once, and found again after an outage.

The API starts while the database is away; until the database was seen to be right, no request gets the store.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import Depends, Request

from durable_jobs.api.cursors import KEY_NAME
from durable_jobs.api.rates import RateLimit
from durable_jobs.errors import StoreUnavailable
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.api_state import PgApiState
from durable_jobs.stores.postgres.database import Database

PROOF_PATIENCE = timedelta(seconds=2)


@dataclass
class Access:
    """What requests work with: the settings, the declared types, the store."""

    settings: Settings
    registry: Registry

    def __post_init__(self) -> None:
        """Prepare the store; nothing is connected yet."""
        # A request may need two calls, and is to say itself what is wrong before its time is over.
        bound = min(self.settings.database_timeout, self.settings.api_request_timeout / 2)
        self._database = Database(
            self.settings.require_database_url(),
            timeout=bound,
            pool_size=self.settings.pool_size,
            prepared_statements=self.settings.prepared_statements,
        )
        self._store = PgJobsStore(self._database)
        self._state = PgApiState(self._database)
        self._cursor_key: bytes | None = None
        self.rate_limit = RateLimit(self._state, self.settings.api_rate_limit)
        self._proving: asyncio.Task[None] | None = None
        self._proved = False

    async def open(self) -> None:
        """Allow connections."""
        await self._store.open()

    async def close(self) -> None:
        """Close every connection."""
        if self._proving is not None:
            self._proving.cancel()
        await self.rate_limit.close()
        await self._store.close()

    async def store(self) -> PgJobsStore:
        """Return the store.

        Raises:
            StoreUnavailable, SchemaOutdated, UnsafeDatabaseRole, InvalidSettings.
        """
        if not self._proved:
            # All who wait share one proof, so that an outage costs one connection attempt.
            if self._proving is None or self._proving.done():
                self._proving = asyncio.create_task(self._prove())
                self._proving.add_done_callback(_heard)
            await asyncio.shield(self._proving)
        return self._store

    async def cursor_key(self) -> bytes:
        """Return the key that seals cursors, the same in every process.

        Raises:
            StoreUnavailable, SchemaOutdated, UnsafeDatabaseRole, InvalidSettings.
        """
        await self.store()
        if self._cursor_key is None:
            self._cursor_key = await self._state.key(KEY_NAME)
        return self._cursor_key

    async def require_ready(self) -> None:
        """Return when the store answers now and takes writes.

        Raises:
            StoreUnavailable, SchemaOutdated, UnsafeDatabaseRole, InvalidSettings.
        """
        try:
            async with asyncio.timeout(PROOF_PATIENCE.total_seconds()):
                await self.store()
                rows = await self._database.fetch(
                    "SELECT current_setting('transaction_read_only') = 'on'", {}
                )
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer within {PROOF_PATIENCE.total_seconds():g} s") from error
        if rows[0][0]:
            raise StoreUnavailable("the database accepts no writes (read-only)")

    async def _prove(self) -> None:
        await self._store.open(environment=self.settings.environment)
        self._proved = True


def _heard(proof: asyncio.Task[None]) -> None:
    """Take note of a proof that failed when nobody waited for it any more."""
    if not proof.cancelled():
        proof.exception()


def access_of(request: Request) -> Access:
    """Return the application's access."""
    access: Access = request.app.state.access
    return access


AppAccess = Annotated[Access, Depends(access_of)]
