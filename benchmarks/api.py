"""How soon the API answers 202 at a steady rate of submissions, without any worker.

Usage: python -m benchmarks.api [SUBMISSIONS A SECOND ...]; without any: 200.

One API process with tokens on a Postgres of its own with default settings (fsync on, row-level security on).
Submissions come at fixed times, whatever became of those before them, and are measured from the time at which
they were to come. Each rate is measured with the limit of rate on and off. Prints a table in markdown.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from statistics import quantiles
from typing import NamedTuple

import httpx
from pydantic import SecretStr

from durable_jobs.api.callers import EVERY_SCOPE
from durable_jobs.api.tokens import make_token
from durable_jobs.embedded import PostgresCluster
from durable_jobs.embedded.ports import free_port
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.settings import Settings

RATES = (200,)
SECONDS = 15
WARM_UP_SECONDS = 3
CONNECTIONS = 40
START_S = 60
HIGH_LIMIT = "1000000"
BODY = b'{"type":"BENCH","data":{"at":0,"note":"a payload of two keys"}}'


class Figures(NamedTuple):
    """What was measured, in milliseconds."""

    rate: int
    limited: bool
    p50: float
    p95: float
    p99: float
    worst: float


class Caller:
    """One connection that posts the same request again and again."""

    def __init__(self, port: int, token: str) -> None:
        """Nothing is connected yet."""
        self._port = port
        self._request = (
            f"POST /jobs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n"
        ).encode() + BODY

    async def connect(self) -> None:
        """Open the connection."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self) -> None:
        """Post once; anything but 202 ends the run."""
        self._writer.write(self._request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 202"):
            raise RuntimeError(head.decode())
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        await self._reader.readexactly(int(length))

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def measure(port: int, token: str, rate: int, seconds: float) -> list[float]:
    """Return how long each submission took, in milliseconds from when it was to come."""
    free: asyncio.Queue[Caller] = asyncio.Queue()
    callers = [Caller(port, token) for _ in range(CONNECTIONS)]
    for caller in callers:
        await caller.connect()
        free.put_nowait(caller)
    took: list[float] = []

    async def submit(due: float) -> None:
        caller = await free.get()
        await caller.post()
        took.append((time.perf_counter() - due) * 1000)
        free.put_nowait(caller)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for n in range(int(rate * seconds)):
            due = began + n / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(submit(due))
    for caller in callers:
        caller.close()
    return took


def serve(database_url: str, secret: str, limit: str) -> tuple[subprocess.Popen[bytes], int]:
    """Start an API process and return it when it answers."""
    port = free_port()
    variables = {
        "DURABLE_JOBS_DATABASE_URL": database_url,
        "DURABLE_JOBS_JWT_SECRET": secret,
        "DURABLE_JOBS_API_RATE_LIMIT": limit,
        "DURABLE_JOBS_MODULES": "benchmarks.systems.ours",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "durable_jobs", "api", "--port", str(port)],
        env=os.environ | variables,
        stderr=subprocess.DEVNULL,
    )
    give_up = time.monotonic() + START_S
    while True:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=5).is_success:
                return process, port
        except httpx.HTTPError:
            pass
        if time.monotonic() > give_up or process.poll() is not None:
            process.kill()
            raise TimeoutError("the API does not answer")
        time.sleep(0.1)


def figures(database_url: str, rate: int, *, limited: bool) -> Figures:
    """Measure one rate with an API process of its own."""
    secret = secrets.token_urlsafe(32)
    process, port = serve(database_url, secret, HIGH_LIMIT if limited else "0")
    try:
        token = make_token(
            Settings(jwt_secret=SecretStr(secret)),
            tenant="default",
            subject="benchmark",
            scopes=EVERY_SCOPE,
            lifetime=timedelta(hours=1),
        )
        asyncio.run(measure(port, token, rate, WARM_UP_SECONDS))
        took = asyncio.run(measure(port, token, rate, SECONDS))
    finally:
        process.terminate()
        process.wait()
    cuts = quantiles(took, n=100, method="inclusive")
    return Figures(rate, limited, cuts[49], cuts[94], cuts[98], max(took))


def main(rates: list[int]) -> None:
    """Measure each rate and print the table."""
    heads = ("submissions/s", "limit of rate", "p50 ms", "p95 ms", "p99 ms", "worst ms")
    sys.stdout.write(f"| {' | '.join(heads)} |\n|{'---:|' * len(heads)}\n")
    with tempfile.TemporaryDirectory(prefix="durable-jobs-bench-") as folder:
        Path(folder).chmod(0o711)
        cluster = PostgresCluster(Path(folder) / "home")
        cluster.start()
        try:
            cluster.create_database("api")
            admin = cluster.admin_url("api")
            migrate(admin)
            application = provision(admin, secrets.token_urlsafe(16))
            for rate in rates:
                for limited in (False, True):
                    f = figures(application, rate, limited=limited)
                    sys.stdout.write(
                        f"| {f.rate} | {'on' if f.limited else 'off'} | {f.p50:.1f} | {f.p95:.1f} | {f.p99:.1f} |"
                        f" {f.worst:.1f} |\n"
                    )
                    sys.stdout.flush()
        finally:
            cluster.remove()
    sys.stdout.write(f"\nLoad of the machine at the end: {os.getloadavg()[0]:.1f}.\n")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(RATES))
