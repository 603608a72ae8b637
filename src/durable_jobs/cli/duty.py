"""`workers`: who is on duty, what each holds of the queues, and since when it is silent."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import typer

from durable_jobs.cli.arguments import TENANT, Json
from durable_jobs.cli.output import answer, answer_json, say, table
from durable_jobs.cli.where import Jobs, with_jobs
from durable_jobs.moments import for_people

_HEADS = ("EXECUTOR", "PROCESS", "STATE", "SINCE", "SILENCE", "HOLDS")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("workers")(workers)


def workers(as_json: Json = False) -> None:
    """List the executors: each shift's process, the part of each queue's bound it holds, its last beat.

    Example: durable-jobs workers
    """

    async def read(jobs: Jobs) -> list[dict[str, Any]]:
        return await jobs.workers()

    found = with_jobs(TENANT, read)
    if as_json:
        answer_json({"workers": found})
        return
    answer(table(_HEADS, [_row(worker) for worker in found]))
    if not found:
        say("Nobody is on duty: `durable-jobs up` or the deployment execute-jobs/shift starts a shift")


def _row(worker: dict[str, Any]) -> tuple[Any, ...]:
    held = ", ".join(f"{queue} {worker['held'].get(queue, 0)}" for queue in worker["queues"])
    return (
        worker["executorId"],
        f"{worker['host']}:{worker['pid']}",
        worker["state"],
        for_people(datetime.fromisoformat(worker["startedAt"])),
        f"{worker['silenceSeconds']:.1f} s",
        held,
    )
