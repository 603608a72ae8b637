"""Job types of an installation's user: each execution leaves a line in the folder that its request names."""

import asyncio
import os
from pathlib import Path

from pydantic import BaseModel

from durable_jobs import JobContext, Queue, job_type

WORK = Queue("work", concurrency=10, max_pending=None)
ALONE = Queue("alone", concurrency=2, max_pending=None, isolation="flow_run")


class Trace(BaseModel):
    """Where to leave traces, and how long the first execution takes; what runs again is quick."""

    folder: Path
    seconds: float = 0.0


def leave(request: Trace, context: JobContext) -> float:
    """Write down that a job began, one execution, one line; return how long to take."""
    with (request.folder / str(context.job_id)).open("a") as file:
        first = file.tell() == 0
        file.write(f"{os.getpid()}\n")
    return request.seconds if first else 0.0


@job_type("AGAIN", queue=WORK, on_orphan="replay")
async def again(request: Trace, context: JobContext) -> None:
    await asyncio.sleep(leave(request, context))


@job_type("ONCE", queue=WORK, visibility="history")
async def once(request: Trace, context: JobContext) -> None:
    await asyncio.sleep(leave(request, context))


@job_type("ALONE", queue=ALONE)
async def alone(request: Trace, context: JobContext) -> None:
    leave(request, context)


@job_type("LOOP", queue=ALONE)
async def loop(request: Trace, context: JobContext) -> None:
    leave(request, context)
    while True:
        pass
