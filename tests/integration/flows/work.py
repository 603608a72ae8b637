"""Job types of these tests."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel

from durable_jobs import JobContext, Queue, job_type

SHOWN = Queue("shown", concurrency=20, max_pending=None)
ALONE = Queue("alone", concurrency=2, max_pending=None, isolation="flow_run")


class Letter(BaseModel):
    """What to say."""

    text: str = ""
    seconds: float = 0.0


@job_type("GREET", queue=SHOWN)
async def greet(request: Letter, context: JobContext) -> str:
    await asyncio.sleep(request.seconds)
    context.logger.info("A greeting of %s characters", len(request.text))
    return request.text


@job_type("FAIL", queue=SHOWN)
async def fail(request: Letter, context: JobContext) -> None:
    raise ValueError("there is nobody to greet")


@job_type("AGAIN", queue=SHOWN, on_orphan="replay")
async def again(request: Letter, context: JobContext) -> None:
    await asyncio.sleep(request.seconds)


@job_type("QUIET", queue=SHOWN, visibility="history")
async def quiet(request: Letter, context: JobContext) -> None:
    return None


@job_type("WARN", queue=SHOWN, visibility="history")
def warn(request: Letter, context: JobContext) -> None:
    context.logger.info("not for Prefect")
    context.logger.warning("100 %s", "% of it", secret="invented")


@job_type("HEAVY", queue=ALONE, on_orphan="replay")
async def heavy(request: Letter, context: JobContext) -> None:
    await asyncio.sleep(request.seconds)
