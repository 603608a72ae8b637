"""Holds a queue or a job type back, and lets it go on."""

from __future__ import annotations

from typing import Literal

from durable_jobs.tasks.runtimes import OpenRuntime

Kind = Literal["queue", "type"]
Action = Literal["pause", "resume"]


async def pause_or_resume(runtime: OpenRuntime, kind: Kind, name: str, action: Action, by: str) -> str:
    """Do it and return what is so now.

    Raises:
        UnknownQueue, UnknownJobType: nothing of this name is declared.
    """
    if kind == "queue":
        runtime.registry.queue(name)
    else:
        runtime.registry.job_type(name)
    if action == "pause":
        await runtime.store.pause(kind, name, by=by)
        return f"{kind} {name} is paused: what waits, waits"
    resumed = await runtime.store.resume(kind, name, by=by)
    return f"{kind} {name} goes on" if resumed else f"{kind} {name} was not paused"
