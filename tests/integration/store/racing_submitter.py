"""A process that submits from many tasks at once, some within transactions it holds open: `URL BOUND SECONDS`."""

from __future__ import annotations

import asyncio
import random
import sys
import time

import psycopg

from durable_jobs.errors import QueueFull
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.within import within
from durable_jobs.tenants import job_tenant_scope
from tests.support.jobs import new_job
from tests.support.processes import wait_for_start
from tests.support.stores import open_store

TASKS = 13


async def submit(store: PgJobsStore, bound: int, until: float) -> None:
    while time.monotonic() < until:
        try:
            await store.register_idempotent([new_job(max_pending=bound) for _ in range(random.randint(1, 3))])
        except QueueFull:
            await asyncio.sleep(0.005)


async def submit_in_transactions(url: str, bound: int, until: float) -> None:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        while time.monotonic() < until:
            try:
                async with connection.transaction(force_rollback=random.random() < 0.3):
                    await within(connection).register_idempotent([new_job(max_pending=bound)])
                    await asyncio.sleep(random.random() / 20)
            except QueueFull:
                await asyncio.sleep(0.005)


async def main(url: str, bound: int, seconds: float) -> None:
    async with open_store(url, pool_size=TASKS) as store:
        wait_for_start()
        until = time.monotonic() + seconds
        with job_tenant_scope(random.choice("abc")):
            await asyncio.gather(
                *(submit(store, bound, until) for _ in range(TASKS - 3)),
                *(submit_in_transactions(url, bound, until) for _ in range(3)),
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
