"""The floor: bare SQL on the same table, as its owner, without checks, bounds, tenants or asyncio tasks."""

from __future__ import annotations

import asyncio
import json
import os
import time
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool
from uuid_utils.compat import uuid7

from benchmarks.systems.base import CHUNK, CONNECTIONS, System

BATCH = 100
_ONE = """
    INSERT INTO job_history (job_id, tenant_id, job_type, queue, payload, payload_hash, root_job_id)
    VALUES (%(id)b, 'default', 'BENCH', 'bench', %(payload)s, 'x', %(id)b)
"""
_MANY = """
    INSERT INTO job_history (job_id, tenant_id, job_type, queue, payload, payload_hash, root_job_id)
    SELECT id, 'default', 'BENCH', 'bench', payload::jsonb, 'x', id
    FROM unnest(%(ids)b::uuid[], %(payloads)b::text[]) AS r (id, payload)
"""
_CLAIM = """
    UPDATE job_history SET state = 'RUNNING', claim_token = gen_random_uuid(), executor_id = job_id,
        started_at = now(), deadline_at = now() + timeout
    WHERE job_id = ANY (ARRAY(
        SELECT job_id FROM job_history
        WHERE queue = 'bench' AND tenant_id = 'default' AND state = 'PENDING' AND claim_order = 0
        ORDER BY run_at, job_id LIMIT %s FOR UPDATE SKIP LOCKED))
    RETURNING job_id, claim_token, payload::text
"""
_FINISH = """
    UPDATE job_history h SET state = 'SUCCEEDED', result = '{"status": "OK"}', completed_at = now()
    WHERE ctid = ANY (ARRAY(
        SELECT j.ctid FROM unnest(%b::uuid[], %b::uuid[]) AS d (id, token)
        CROSS JOIN LATERAL (
            SELECT ctid FROM job_history
            WHERE job_id = d.id AND completed_at IS NULL AND claim_token = d.token FOR UPDATE) j))
"""
PAYLOAD = json.dumps({"at": 0, "note": "x"})


class Floor(System):
    """What Postgres and the driver allow; claims and outcomes on two connections."""

    async def open(self) -> None:
        self.url = os.environ["BENCH_ADMIN_URL"]
        self.pool = AsyncConnectionPool(
            self.url, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs={"autocommit": True}, open=False
        )
        await self.pool.open(wait=True)

    async def close(self) -> None:
        await self.pool.close()

    async def register(self) -> None:
        async with self.pool.connection() as connection:
            await connection.execute(_ONE, {"id": uuid7(), "payload": PAYLOAD})

    async def register_many(self, jobs: int) -> None:
        async with self.pool.connection() as connection:
            for _ in range(jobs // CHUNK):
                ids = [uuid7() for _ in range(CHUNK)]
                await connection.execute(_MANY, {"ids": ids, "payloads": [PAYLOAD] * CHUNK})

    async def drain(self, jobs: int) -> float:
        claimed: asyncio.Queue[list[tuple[UUID, UUID, str]]] = asyncio.Queue(maxsize=5)
        began = time.perf_counter()
        async with self.pool.connection() as one, self.pool.connection() as other:
            await asyncio.gather(_claim(one, claimed), _finish(other, claimed))
        return jobs / (time.perf_counter() - began)

    async def serve(self) -> None:
        raise NotImplementedError("the floor has no worker")

    async def clear(self) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("DELETE FROM job_history WHERE state IN ('PENDING', 'RUNNING')")
            await connection.execute("VACUUM (ANALYZE) job_history")


async def _claim(connection: psycopg.AsyncConnection, claimed: asyncio.Queue) -> None:
    while rows := await (await connection.execute(_CLAIM, [BATCH])).fetchall():
        await claimed.put(rows)
    await claimed.put([])


async def _finish(connection: psycopg.AsyncConnection, claimed: asyncio.Queue) -> None:
    while rows := await claimed.get():
        await connection.execute(_FINISH, [[row[0] for row in rows], [row[1] for row in rows]])
