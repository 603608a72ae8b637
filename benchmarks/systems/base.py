"""What is asked of every system, in its own words: register, register many, empty the queue, wait for work.

A drain is timed by the database's clock, from the first claim to the last outcome that is committed, so
that neither the start nor the end of a worker counts.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod

CHUNK = 1_000
CONNECTIONS = 10


class System(ABC):
    """One system, in a process of its own, on a database of its own."""

    def __init__(self, url: str) -> None:
        """Take the URL of the database; `open` connects."""
        self.url = url
        self.latencies: list[float] = []
        self._serving: asyncio.Task[None] | None = None

    @abstractmethod
    async def open(self) -> None:
        """Connect; the first process to come makes the tables."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""

    @abstractmethod
    async def register(self) -> None:
        """Register one job, with the time of now in its payload."""

    @abstractmethod
    async def register_many(self, jobs: int) -> None:
        """Register with the system's way for many, in portions of `CHUNK`."""

    @abstractmethod
    async def drain(self, jobs: int) -> float:
        """Execute the waiting no-op jobs and return how many a second."""

    @abstractmethod
    async def serve(self) -> None:
        """Work until cancelled; jobs tell their latency to `picked_up`."""

    @abstractmethod
    async def clear(self) -> None:
        """Leave nothing waiting."""

    def picked_up(self, registered_at: int) -> None:
        """Note how long (ms) a job waited; the clock is the machine's, in nanoseconds."""
        self.latencies.append((time.monotonic_ns() - registered_at) / 1e6)

    async def one_by_one(self, jobs: int, callers: int) -> dict[str, float]:
        """Register from several callers at once; jobs a second and the 99th percentile (ms)."""
        took: list[float] = []

        async def caller() -> None:
            for _ in range(jobs // callers):
                began = time.perf_counter()
                await self.register()
                took.append(time.perf_counter() - began)

        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        rate = len(took) / (time.perf_counter() - began)
        return {"rate": rate, "p99": sorted(took)[int(len(took) * 0.99)] * 1e3}

    async def bulk(self, jobs: int) -> float:
        """Register many; jobs a second."""
        began = time.perf_counter()
        await self.register_many(jobs)
        return jobs / (time.perf_counter() - began)

    async def trickle(self, jobs: int, every: float) -> None:
        """Register one job every so often (s)."""
        for _ in range(jobs):
            await self.register()
            await asyncio.sleep(every)

    async def start_serving(self) -> None:
        """Work in the background."""
        self.latencies.clear()
        self._serving = asyncio.create_task(self.serve())

    async def stop_serving(self, expected: int) -> list[float]:
        """Wait for the last of the expected jobs, end the worker and return the latencies (ms)."""
        give_up = time.monotonic() + 10
        while len(self.latencies) < expected and time.monotonic() < give_up:  # noqa: ASYNC110 -- counted by callbacks
            await asyncio.sleep(0.05)
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)
        return list(self.latencies)
