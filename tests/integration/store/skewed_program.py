"""A program with a wrong clock that registers, claims, fails, retries and lists: `URL`."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, datetime, timedelta

from durable_jobs.stores.protocols import JobFilter
from durable_jobs.tenants import job_tenant_scope
from tests.support.jobs import QUEUE, enter, failed, new_job
from tests.support.processes import wait_for_start
from tests.support.stores import open_store


async def main(url: str) -> None:
    async with open_store(url) as store:
        executor = await enter(store)
        wait_for_start()
        with job_tenant_scope("acme"):
            for n in range(5):
                await store.register_idempotent([new_job({"n": n})])
            jobs = (await store.claim(executor, QUEUE, 3)).jobs
            await store.beat(executor)
            silent = await store.silent_executors(stale_after=timedelta(minutes=1))
            overdue = await store.fail_overdue(margin=timedelta(0))
            await store.finish([failed(job) for job in jobs])
            for job in jobs:
                await store.retry(job.job_id, max_pending=None)
            listed = [str(job.job_id) for job in (await store.list_jobs(JobFilter())).jobs]
            waiting = len((await store.claim(executor, QUEUE, 10)).jobs)
    answer = {
        "clock": datetime.now(UTC).isoformat(),
        "claimed": [json.loads(job.payload)["n"] for job in jobs],
        "silent": len(silent),
        "overdue": len(overdue),
        "listed": len(listed),
        "waiting": waiting,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
