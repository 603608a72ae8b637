"""Job types of the tests: each execution leaves its traces in the table `traces`."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from pydantic import BaseModel

from durable_jobs import JobContext, NotRetryable, Queue, job_type

WORK = Queue("work", concurrency=20, max_pending=None)
NARROW = Queue("narrow", concurrency=1, max_pending=None)
BOUNDED = Queue("bounded", concurrency=4, max_pending=None)
LET_GO = threading.Event()
"""Ends jobs of type DEAF in this process."""


class Take(BaseModel):
    """How long to work, and how."""

    seconds: float = 0.0
    text: str = ""


def trace(context: JobContext, what: str) -> None:
    """Write down what an execution does, on a connection of its own."""
    with psycopg.connect(os.environ["DURABLE_JOBS_DATABASE_URL"], autocommit=True) as connection:
        connection.execute(
            "INSERT INTO traces (job_id, what, pid) VALUES (%s, %s, %s)", [context.job_id, what, os.getpid()]
        )


async def traced(context: JobContext, what: str) -> None:
    """Write it down without blocking the loop."""
    await asyncio.to_thread(trace, context, what)


async def _work(request: Take, context: JobContext) -> str:
    await traced(context, "began")
    await asyncio.sleep(request.seconds)
    await traced(context, "ended")
    return request.text


@job_type("REPLAY", queue=WORK, on_orphan="replay", visibility="history")
async def replay(request: Take, context: JobContext) -> str:
    return await _work(request, context)


@job_type("ONCE", queue=WORK, visibility="history")
async def once(request: Take, context: JobContext) -> str:
    return await _work(request, context)


@job_type("NARROW", queue=NARROW, visibility="history")
async def narrow(request: Take, context: JobContext) -> str:
    return await _work(request, context)


@job_type("BOUNDED", queue=BOUNDED, on_orphan="replay", visibility="history")
async def bounded(request: Take, context: JobContext) -> str:
    return await _work(request, context)


@job_type("THREAD", queue=WORK, visibility="history")
def thread(request: Take, context: JobContext) -> str:
    trace(context, "began")
    until = time.monotonic() + request.seconds
    while time.monotonic() < until and not context.cancelled:
        time.sleep(0.02)
    trace(context, "ended")
    return request.text


@job_type("NAP", queue=WORK, on_orphan="replay", visibility="history")
def nap(request: Take, context: JobContext) -> str:
    """Sleep without a look at anything, so that its result comes whatever happened meanwhile."""
    trace(context, "began")
    time.sleep(request.seconds)
    return request.text


@job_type("LINE", queue=WORK, on_orphan="replay", visibility="history")
async def line(request: Take, context: JobContext) -> None:
    """Leave a line at the beginning and at the end in the file that the request names: without the database."""
    write_line(request, context, "began")
    await asyncio.sleep(request.seconds)
    write_line(request, context, "ended")


def write_line(request: Take, context: JobContext, word: str) -> None:
    with Path(request.text).open("a") as file:
        file.write(f"{word} {context.job_id}\n")


@job_type("BLOCKED_LOOP", queue=WORK, visibility="history")
async def blocked_loop(request: Take, context: JobContext) -> None:
    trace(context, "began")
    time.sleep(request.seconds)  # noqa: ASYNC251 -- it is what the test is about
    trace(context, "ended")


@job_type("CPU_LOOP", queue=WORK, visibility="history")
async def cpu_loop(request: Take, context: JobContext) -> int:
    trace(context, "began")
    until, n = time.monotonic() + request.seconds, 0
    while time.monotonic() < until:
        n += 1
    trace(context, "ended")
    return n


@job_type("DEAF_THREAD", queue=WORK, timeout=timedelta(seconds=1), visibility="history")
def deaf_thread(request: Take, context: JobContext) -> None:
    trace(context, "began")
    time.sleep(request.seconds)


@job_type("SHORT", queue=WORK, timeout=timedelta(seconds=0.5), visibility="history")
async def short(request: Take, context: JobContext) -> None:
    await _work(request, context)


@job_type("STUBBORN", queue=WORK, visibility="history")
async def stubborn(request: Take, context: JobContext) -> str:
    await traced(context, "began")
    try:
        await asyncio.sleep(request.seconds)
    except asyncio.CancelledError:
        await traced(context, "was cancelled")
    return "went on"


@job_type("POISON", queue=WORK, on_orphan="replay", visibility="history")
async def poison(request: Take, context: JobContext) -> None:
    await traced(context, "began")
    os.kill(os.getpid(), signal.SIGKILL)


@job_type("DEAF", queue=WORK, visibility="history")
def deaf(request: Take, context: JobContext) -> None:
    trace(context, "began")
    LET_GO.wait(30)


@job_type("MEMORY", queue=WORK, visibility="history")
async def memory(request: Take, context: JobContext) -> int:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 100_000_000, before[1]))
    try:
        return len(b"x" * 1_000_000_000)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@job_type("RAISES", queue=WORK, visibility="history")
async def raises(request: Take, context: JobContext) -> None:
    raise _errors()[request.text]


def _errors() -> dict[str, BaseException]:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    return {
        "nul": ValueError("before\x00after"),
        "surrogate": ValueError("before\udcffafter"),
        "long": ValueError("x" * 5_000_000),
        "unreadable": Unreadable(),
        "exit": SystemExit(3),
        "cancelled": asyncio.CancelledError("by itself"),
        "interrupt": KeyboardInterrupt(),
        "final": NotRetryable("there is no such document"),
    }


@job_type("RETURNS", queue=WORK, visibility="history")
async def returns(request: Take, context: JobContext) -> Any:
    context.progress(1, 2, "half")
    if request.seconds:
        await asyncio.sleep(request.seconds)
    values: dict[str, Any] = {
        "large": "x" * 2_000_000,
        "nul": {"a\x00": ["b\x00"]},
        "nan": float("nan"),
        "object": object(),
        "surrogate": "\udcff",
    }
    return values[request.text]
