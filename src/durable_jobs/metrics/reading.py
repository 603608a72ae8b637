"""Reads the figures in one round trip, over a connection of its own: requests never wait for a scrape."""

from __future__ import annotations

import time
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import structlog

from durable_jobs.errors import DurableJobsError
from durable_jobs.metrics.figures import Figures, Live, Window
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres.database import Database

WINDOWS = tuple(timedelta(seconds=s) for s in (300, 60, 15, 5, 1))
"""Recent is five minutes, or less when more jobs ended in it than are looked at."""
MOST_ROWS = 20_000

_READ = """
SELECT measure_live(%(queues)s::text[], %(types)s::text[], %(stale)s::interval, NULL),
       measure_recent(%(queues)s::text[], %(types)s::text[], %(windows)s::interval[], %(rows)s, NULL)
"""

logger = structlog.get_logger(__name__)


class FiguresReader:
    """Reads the figures of one database; `open` it before and `close` it behind."""

    def __init__(
        self, database: Database, *, queues: Collection[str], types: Collection[str], stale_after: timedelta
    ) -> None:
        """Use a database of its own, and the names that may become labels."""
        self._db = database
        self._fault: str | None = None
        self._params: dict[str, Any] = {
            "queues": sorted(queues),
            "types": sorted(types),
            "stale": stale_after,
            "windows": list(WINDOWS),
            "rows": MOST_ROWS,
        }

    @classmethod
    def from_settings(cls, settings: Settings, registry: Registry) -> FiguresReader:
        """Return a reader of the settings' database.

        Raises:
            InvalidSettings: no database URL is set.
        """
        database = Database(
            settings.require_database_url(),
            timeout=settings.database_timeout,
            pool_size=1,
            prepared_statements=settings.prepared_statements,
        )
        return cls(
            database,
            queues=registry.queues,
            types=registry.job_types,
            stale_after=settings.running_stale_after,
        )

    async def open(self) -> None:
        """Allow a connection."""
        await self._db.open()

    async def close(self) -> None:
        """Close the connection."""
        await self._db.close()

    async def read(self) -> Figures | None:
        """Return the figures, or None when the database does not give them; why is logged once."""
        began = time.monotonic()
        try:
            [(live, recent)] = await self._db.fetch(_READ, self._params)
        except DurableJobsError as error:
            if str(error) != self._fault:
                self._fault = str(error)
                logger.warning("no figures for metrics", error=self._fault)
            return None
        self._fault = None
        return Figures(
            live=Live.model_validate(live),
            recent=Window.model_validate(recent),
            took_s=time.monotonic() - began,
        )
