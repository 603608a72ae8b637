"""Pauses or resumes a queue or a job type from the Prefect UI."""

from __future__ import annotations

from typing import Annotated

from prefect import flow
from prefect.logging import get_run_logger
from pydantic import Field

from durable_jobs.tasks.pausing import Action, Kind, pause_or_resume
from durable_jobs.tasks.runtimes import open_runtime


@flow(name="pause-queue", persist_result=False)
async def pause_queue(
    name: Annotated[str, Field(description="Name of the queue or the job type.")],
    action: Annotated[Action, Field(description="Hold it back, or let it go on.")] = "pause",
    kind: Annotated[Kind, Field(description="What the name names.")] = "queue",
) -> str:
    """Pause or resume a queue or a job type.

    Paused work waits; nothing fails, and what runs goes on.
    """
    async with open_runtime() as runtime:
        answer = await pause_or_resume(runtime, kind, name, action, by="prefect")
    get_run_logger().info(answer)
    return answer
