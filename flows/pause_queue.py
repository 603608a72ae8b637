"""Pauses or resumes a queue or a job type from the Prefect UI."""

from __future__ import annotations

from prefect import flow
from prefect.logging import get_run_logger

from durable_jobs.tasks.pausing import Action, Kind, pause_or_resume
from durable_jobs.tasks.runtimes import open_runtime


@flow(name="pause-queue", persist_result=False)
async def pause_queue(
    name: str,
    action: Action = "pause",
    kind: Kind = "queue",
) -> str:
    """Pause or resume a queue or a job type.

    Paused work waits; nothing fails, and what runs goes on.

    Args:
        name: Name of the queue or the job type.
        action: Hold it back, or let it go on.
        kind: What the name names.
    """
    async with open_runtime() as runtime:
        answer = await pause_or_resume(runtime, kind, name, action, by="prefect")
    get_run_logger().info(answer)
    return answer
