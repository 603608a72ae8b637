"""A process that claims as fast as it can and tells every job it got: `URL ROUNDS`."""

from __future__ import annotations

import asyncio
import json
import sys
from uuid import UUID

from durable_jobs.stores.postgres import PgJobsStore
from tests.support.jobs import QUEUE, enter, succeeded
from tests.support.processes import wait_for_start
from tests.support.stores import open_store


async def claim_until_empty(store: PgJobsStore, executor: UUID) -> list[str]:
    executed, misses = [], 0
    while misses < 5:
        claim = await store.claim(executor, QUEUE, 3)
        misses = 0 if claim.jobs else misses + 1
        executed += [str(job.job_id) for job in claim.jobs]
        await store.finish([succeeded(job) for job in claim.jobs])
    return executed


async def claim_each_by_id(store: PgJobsStore, executor: UUID, job_ids: list[str]) -> list[str]:
    won = []
    for job_id in job_ids:
        claimed = await store.claim_job(executor, "acme", UUID(job_id))
        if claimed is not None:
            won.append(job_id)
    return won


async def main(url: str, job_ids: list[str]) -> None:
    async with open_store(url) as store:
        executor = await enter(store)
        wait_for_start()
        one_by_one = await claim_each_by_id(store, executor, job_ids)
        several = await asyncio.gather(*(claim_until_empty(store, executor) for _ in range(3)))
    executed = [job_id for some in several for job_id in some]
    sys.stdout.write(json.dumps({"one_by_one": one_by_one, "executed": executed}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2].split(",")))
