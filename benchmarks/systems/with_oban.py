"""oban (Python 3.12 or newer) with its own pool and a queue limit of 100; finished jobs stay in its table."""

from __future__ import annotations

import asyncio
import time

import psycopg
from oban import Oban, worker
from oban.schema import install

from benchmarks.systems.base import CHUNK, CONNECTIONS, System

LIMIT = 100
_RATE = """
    SELECT count(*) / extract(epoch FROM max(completed_at) - min(attempted_at))
    FROM (SELECT attempted_at, completed_at FROM oban_jobs WHERE state = 'completed'
          ORDER BY completed_at DESC LIMIT %s)
"""

_serving: WithOban | None = None


@worker(queue="default")
class Ping:
    """Do nothing, but tell when."""

    async def process(self, job: object) -> None:
        if job.args["at"] and _serving is not None:
            _serving.picked_up(job.args["at"])


class WithOban(System):
    """Its queue wakes up by itself for what is inserted."""

    async def open(self) -> None:
        global _serving
        self.pool = await Oban.create_pool(self.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
        async with self.pool.connection() as connection:
            found = await connection.execute("SELECT to_regclass('oban_jobs')")
            missing = (await found.fetchone())[0] is None
        if missing:
            await install(self.pool)
        self.client = await Oban(pool=self.pool, name="client").start()
        _serving = self

    async def close(self) -> None:
        await self.client.stop()
        await self.pool.close()

    async def register(self) -> None:
        await self.client.enqueue(Ping.new({"at": time.monotonic_ns(), "note": "x"}))

    async def register_many(self, jobs: int) -> None:
        for begun in range(0, jobs, CHUNK):
            size = min(CHUNK, jobs - begun)
            await self.client.enqueue_many(Ping.new({"at": 0, "note": "x"}) for _ in range(size))

    async def drain(self, jobs: int) -> float:
        give_up = time.monotonic() + 300
        async with Oban(pool=self.pool, name="worker", queues={"default": LIMIT}):
            while await self._live() and time.monotonic() < give_up:  # noqa: ASYNC110 -- it tells nobody when it is empty
                await asyncio.sleep(0.1)
        with psycopg.connect(self.url) as connection:
            return float(connection.execute(_RATE, [jobs]).fetchone()[0])

    async def serve(self) -> None:
        async with Oban(pool=self.pool, name="worker", queues={"default": LIMIT}):
            await asyncio.Event().wait()

    async def _live(self) -> int:
        async with self.pool.connection() as connection:
            row = await connection.execute("SELECT count(*) FROM oban_jobs WHERE state <> 'completed'")
            return (await row.fetchone())[0]

    async def clear(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DELETE FROM oban_jobs WHERE state <> 'completed'")
            connection.execute("VACUUM (ANALYZE) oban_jobs")
