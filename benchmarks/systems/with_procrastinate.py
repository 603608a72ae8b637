"""procrastinate with psycopg, concurrency 5: more does not help it, since it fetches job by job."""

from __future__ import annotations

import time

import procrastinate
import psycopg

from benchmarks.systems.base import CHUNK, CONNECTIONS, System

CONCURRENCY = 5
_RATE = """
    SELECT count(*) FILTER (WHERE type = 'succeeded')
           / extract(epoch FROM max(at) FILTER (WHERE type = 'succeeded')
                                - min(at) FILTER (WHERE type = 'started'))
    FROM (SELECT type, at FROM procrastinate_events WHERE type IN ('started', 'succeeded')
          ORDER BY id DESC LIMIT %s)
"""


class WithProcrastinate(System):
    """Finished jobs stay in its table, with three events each."""

    async def open(self) -> None:
        connector = procrastinate.PsycopgConnector(conninfo=self.url, min_size=CONNECTIONS, max_size=12)
        self.app = procrastinate.App(connector=connector)

        @self.app.task(name="ping")
        async def ping(at: int, note: str) -> None:  # noqa: ARG001 -- the payload of all systems
            if at:
                self.picked_up(at)

        self.ping = ping
        await self.app.open_async()
        if not await self.app.check_connection_async():
            await self.app.schema_manager.apply_schema_async()

    async def close(self) -> None:
        await self.app.close_async()

    async def register(self) -> None:
        await self.ping.defer_async(at=time.monotonic_ns(), note="x")

    async def register_many(self, jobs: int) -> None:
        for begun in range(0, jobs, CHUNK):
            size = min(CHUNK, jobs - begun)
            await self.ping.batch_defer_async(*({"at": 0, "note": "x"} for _ in range(size)))

    async def drain(self, jobs: int) -> float:
        await self._run(wait=False)
        with psycopg.connect(self.url) as connection:
            return float(connection.execute(_RATE, [jobs * 2]).fetchone()[0])

    async def serve(self) -> None:
        await self._run(wait=True)

    async def clear(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("DELETE FROM procrastinate_jobs WHERE status IN ('todo', 'doing')")
            connection.execute("VACUUM (ANALYZE) procrastinate_jobs")

    async def _run(self, *, wait: bool) -> None:
        await self.app.run_worker_async(
            wait=wait, concurrency=CONCURRENCY, install_signal_handlers=False, update_heartbeat_interval=10
        )
