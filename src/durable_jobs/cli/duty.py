"""`workers`: who is on duty, what each holds of the queues, and since when it is silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import typer

from durable_jobs.cli.arguments import TENANT, Json
from durable_jobs.cli.output import answer, answer_json, say, table
from durable_jobs.cli.running import with_store
from durable_jobs.moments import for_people
from durable_jobs.on_duty import as_document, duty_of
from durable_jobs.runtime import Runtime
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import ExecutorView

_HEADS = ("EXECUTOR", "PROCESS", "STATE", "SINCE", "SILENCE", "HOLDS")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("workers")(workers)


def workers(as_json: Json = False) -> None:
    """List the executors: each shift's process, the part of each queue's bound it holds, its last beat.

    Example: durable-jobs workers
    """

    async def read(runtime: Runtime, store: PgJobsStore) -> tuple[list[ExecutorView], timedelta]:
        return await store.executors(), runtime.settings.running_stale_after

    views, stale_after = with_store(TENANT, read)
    if as_json:
        answer_json({"workers": [as_document(view, stale_after) for view in views]})
        return
    answer(table(_HEADS, [_row(view, stale_after) for view in views]))
    if not views:
        say("Nobody is on duty: `durable-jobs up` or the deployment execute-jobs/shift starts a shift")


def _row(view: ExecutorView, stale_after: timedelta) -> tuple[Any, ...]:
    held = ", ".join(f"{queue} {view.held.get(queue, 0)}" for queue in view.executor.queues)
    return (
        view.executor.executor_id,
        f"{view.executor.host}:{view.executor.pid}",
        duty_of(view, stale_after),
        for_people(view.started_at),
        f"{view.silence.total_seconds():.1f} s",
        held,
    )
