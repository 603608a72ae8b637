"""`/metrics` without its server: what a scrape gets, whoever serves it.

A scrape never fails and never waits long: without the database it says that there are no figures, and
Redis is looked at beside it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from durable_jobs.metrics.exposition import Snapshot, SnapshotCollector
from durable_jobs.metrics.keeping import Kept
from durable_jobs.metrics.reading import FiguresReader
from durable_jobs.metrics.redis_figures import UNSEEN, look_at_redis
from durable_jobs.redis_health.target import RedisTarget, target_of_settings
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings

AT_LEAST = timedelta(seconds=1)
LARGEST_SHARE = 0.02
"""Of the time of one connection to Postgres, however many scrapes come."""
PATIENCE = timedelta(seconds=3)
"""How long a scrape waits; Prometheus gives up after 10 s."""
REDIS_EVERY = timedelta(seconds=15)
_AT_ONCE = timedelta(0)


class Exposition(NamedTuple):
    """The answer to a scrape."""

    body: bytes
    content_type: str


class Metrics:
    """The figures of a database and of Redis, for scrapes; use it as an async context manager."""

    def __init__(self, reader: FiguresReader, registry: Registry, redis: RedisTarget | None) -> None:
        """Nothing is read yet."""
        self._reader = reader
        self._queues = registry.queues
        self._figures = Kept(reader.read, at_least=AT_LEAST, largest_share=LARGEST_SHARE)
        self._redis = (
            None
            if redis is None
            else Kept(lambda: look_at_redis(redis), at_least=REDIS_EVERY, largest_share=1.0)
        )

    @classmethod
    def from_settings(cls, settings: Settings, registry: Registry) -> Self:
        """Return the metrics of what the settings name.

        Raises:
            InvalidSettings: no database URL is set.
        """
        return cls(FiguresReader.from_settings(settings, registry), registry, target_of_settings(settings))

    async def __aenter__(self) -> Self:
        await self._reader.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._figures.close()
        if self._redis is not None:
            await self._redis.close()
        await self._reader.close()

    async def scrape(self, accept: str = "") -> Exposition:
        """Return all families in the format that the header Accept prefers."""
        redis = None if self._redis is None else await self._redis.get(wait=_AT_ONCE) or UNSEEN
        snapshot = Snapshot(await self._figures.get(wait=PATIENCE), redis, self._queues)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(SnapshotCollector(snapshot))
        # Prometheus' own choice fails on versions that are none; our names are the same in every version.
        if "application/openmetrics-text" in accept:
            body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call] # it has no types
            return Exposition(body, openmetrics.CONTENT_TYPE_LATEST)
        return Exposition(generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
