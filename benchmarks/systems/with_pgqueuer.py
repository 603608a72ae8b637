"""pgqueuer with asyncpg, batch 100, its autovacuum settings, on uvloop as its own command runs it."""

from __future__ import annotations

import json
import time
from datetime import timedelta

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

from benchmarks.systems.base import CHUNK, CONNECTIONS, System

BATCH = 100
_RATE = """
    SELECT count(*) FILTER (WHERE status = 'successful')
           / extract(epoch FROM max(created) FILTER (WHERE status = 'successful')
                                - min(created) FILTER (WHERE status = 'picked'))
    FROM (SELECT status, created FROM pgqueuer_log WHERE status IN ('picked', 'successful')
          ORDER BY id DESC LIMIT $1)
"""


class WithPgqueuer(System):
    """Its queue holds live jobs only; finished ones leave a line in its log."""

    async def open(self) -> None:
        self.pool = await asyncpg.create_pool(self.url, min_size=CONNECTIONS, max_size=CONNECTIONS)
        self.queries = Queries.from_asyncpg_pool(self.pool)
        if not await self.queries.schema_is_installed():
            await self.queries.install()
            await self.queries.optimize_autovacuum()

    async def close(self) -> None:
        await self.pool.close()

    async def register(self) -> None:
        await self.queries.enqueue("ping", _payload(time.monotonic_ns()))

    async def register_many(self, jobs: int) -> None:
        for _ in range(jobs // CHUNK):
            await self.queries.enqueue(["ping"] * CHUNK, [_payload(0) for _ in range(CHUNK)], [0] * CHUNK)

    async def drain(self, jobs: int) -> float:
        await self._run(QueueExecutionMode.drain)
        # Two lines for each job: picked and successful.
        return float(await self.pool.fetchval(_RATE, jobs * 2))

    async def serve(self) -> None:
        await self._run(QueueExecutionMode.continuous)

    async def clear(self) -> None:
        await self.pool.execute("DELETE FROM pgqueuer")
        await self.pool.execute("VACUUM (ANALYZE) pgqueuer")

    async def _run(self, mode: QueueExecutionMode) -> None:
        connection = await asyncpg.connect(self.url)
        worker = PgQueuer.from_asyncpg_connection(connection)

        @worker.entrypoint("ping")
        async def ping(job: Job) -> None:
            request = json.loads(job.payload or b"{}")
            if request["at"]:
                self.picked_up(request["at"])

        try:
            await worker.run(dequeue_timeout=timedelta(seconds=30), batch_size=BATCH, mode=mode)
        finally:
            if not connection.is_closed():
                await connection.close()


def _payload(at: int) -> bytes:
    return json.dumps({"at": at, "note": "x"}).encode()
