"""Makes jobs with a real BullMQ, at any time in the past: run it as a process of its own.

Usage: python -m tests.support.bullmq_jobs SPECS, where SPECS is JSON, a list of: port, password, prefix,
queue, age (seconds), and how many jobs are to be completed, failed, waiting, delayed, active and blocked (a
parent that waits for a failed child). Prints the ids by kind for each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from bullmq import FlowProducer, Job, Queue, Worker


async def process(job: Job, token: str) -> str:
    await job.log("one line")
    if job.data.get("fail"):
        raise ValueError("no")
    return "done"


async def run_all(queue: str, options: dict[str, Any], expected: int) -> None:
    """Let a worker execute everything that waits."""
    worker = Worker(queue, process, options)
    ended = 0
    over = asyncio.Event()

    def count(*_: Any) -> None:
        nonlocal ended
        ended += 1
        if ended == expected:
            over.set()

    worker.on("completed", count)
    worker.on("failed", count)
    async with asyncio.timeout(30):
        if expected:
            await over.wait()
    await worker.close()


async def make(spec: dict[str, Any]) -> dict[str, list[str]]:
    prefix, name = spec["prefix"], spec["queue"]
    connection = {"host": "127.0.0.1", "port": spec["port"], "password": spec["password"]}
    options = {"prefix": prefix, "connection": connection}
    queue = Queue(name, options)
    ids: dict[str, list[str]] = {}

    async def add(kind: str, data: dict[str, Any], **opts: Any) -> None:
        ids[kind] = [(await queue.add("work", data, opts)).id for _ in range(spec.get(kind, 0))]

    await add("completed", {})
    await add("failed", {"fail": True})
    ids["blocked"] = []
    for _ in range(spec.get("blocked", 0)):
        producer = FlowProducer(connection, {"prefix": prefix})
        child = {"name": "child", "queueName": name, "data": {"fail": True}}
        made = await producer.add({"name": "parent", "queueName": name, "data": {}, "children": [child]})
        ids["blocked"] += [made["job"].id, made["children"][0]["job"].id]
        await producer.close()
    expected = sum(spec.get(kind, 0) for kind in ("completed", "failed", "blocked"))
    await run_all(name, options, expected)
    await add("active", {})
    if spec.get("active"):
        holder = Worker(name, process, options | {"autorun": False})
        for _ in range(spec["active"]):
            await holder.getNextJob("a-token")
        await holder.close(force=True)
    await add("waiting", {})
    await add("delayed", {}, delay=3_600_000)
    await queue.close()
    return ids


async def main(specs: list[dict[str, Any]]) -> None:
    real, made = time.time, []
    for spec in specs:
        time.time = lambda age=spec["age"]: real() - age
        made.append(await make(spec))
    sys.stdout.write(json.dumps(made))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
