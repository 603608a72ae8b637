"""What API processes share through Postgres: the key of their cursors, and each tenant's rate."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import NamedTuple

from durable_jobs.stores.postgres.database import Database

_KEY_BYTES = 32
_MAKE_KEY = "INSERT INTO api_keys (name, key) VALUES (%(name)s, %(key)s) ON CONFLICT DO NOTHING"
_READ_KEY = "SELECT key FROM api_keys WHERE name = %(name)s"
_TAKE = "SELECT granted, wait_s FROM take_rate(%(tenant)s, %(limit)s, %(wanted)s, %(now)s)"


class Taken(NamedTuple):
    """How many submissions were granted, and when the next one may be."""

    granted: int
    wait: timedelta


class PgApiState:
    """Reads and writes what the processes share."""

    def __init__(self, database: Database) -> None:
        """Use a database that the caller opens."""
        self._db = database

    async def key(self, name: str) -> bytes:
        """Return the key of this name, the same one for every process; the first to ask makes it.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        rows = await self._db.fetch(_READ_KEY, {"name": name})
        if not rows:
            await self._db.fetch(_MAKE_KEY, {"name": name, "key": secrets.token_bytes(_KEY_BYTES)})
            rows = await self._db.fetch(_READ_KEY, {"name": name})
        return bytes(rows[0][0])

    async def take_rate(
        self, tenant: str, limit: int, wanted: int = 1, *, now: datetime | None = None
    ) -> Taken:
        """Take up to `wanted` submissions of the `limit` that a tenant has in any minute.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        params = {"tenant": tenant, "limit": limit, "wanted": wanted, "now": now}
        [(granted, wait)] = await self._db.fetch(_TAKE, params)
        return Taken(granted, timedelta(seconds=wait))
