"""Prefect's own background tasks: `.delay()` and a task worker, on the same Prefect server."""

from __future__ import annotations

import asyncio
import time

from prefect import task
from prefect.task_worker import TaskWorker

from benchmarks.systems.base import System

_seen: list[float] = []
_latencies: list[float] = []


@task(persist_result=False)
async def ping(at: int, note: str) -> None:  # noqa: ARG001 -- the payload of all systems
    """Do nothing, but tell when."""
    _seen.append(time.perf_counter())
    if at:
        _latencies.append((time.monotonic_ns() - at) / 1e6)


class WithPrefect(System):
    """A job is a task run, and waits in the memory of the Prefect server."""

    async def open(self) -> None:
        self.latencies = _latencies

    async def close(self) -> None:
        """Nothing is held open."""

    async def register(self) -> None:
        await asyncio.to_thread(ping.delay, time.monotonic_ns(), "x")

    async def register_many(self, jobs: int) -> None:
        for _ in range(jobs):
            await asyncio.to_thread(ping.delay, 0, "x")

    async def drain(self, jobs: int) -> float:
        _seen.clear()
        worker = asyncio.create_task(self.serve())
        give_up = time.monotonic() + 120
        while len(_seen) < jobs and time.monotonic() < give_up:  # noqa: ASYNC110 -- counted by callbacks
            await asyncio.sleep(0.05)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        # Between the first and the last lie one fewer than all.
        return (len(_seen) - 1) / (_seen[-1] - _seen[0])

    async def serve(self) -> None:
        await TaskWorker(ping, limit=10).start()

    async def clear(self) -> None:
        """What waits cannot be cleared."""
