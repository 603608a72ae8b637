"""`durable-jobs worker`: a Prefect worker whose flow runs may finish when it is told to stop.

Prefect's own process worker ends its flow runs with SIGKILL at SIGTERM, which to the store is a crash: jobs wait until
they are found, and are charged with it. Here the flow runs are told first, so shifts give their jobs back at once.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import psutil
import typer

from durable_jobs.deployments.first_pass import ask_for_pass
from durable_jobs.deployments.interrupts import Interrupts
from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.deployments.marked import FLOW_RUN_PROGRAMS, running, stop
from durable_jobs.settings import Settings

LIMIT = 20
LOOK_EVERY = 0.2
# A flow run ends by itself after the grace for its jobs; what is stuck is left to jobs-reconcile.
BEYOND_GRACE, WORKER_PATIENCE = timedelta(seconds=10), timedelta(seconds=20)
POOL_HELP = "Work pool; that of prefect.yaml when not given."
LIMIT_HELP = "How many flow runs it starts at once."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("worker")(worker)


def worker(
    pool: Annotated[str | None, typer.Option(help=POOL_HELP)] = None,
    name: Annotated[str | None, typer.Option(help="Its name in Prefect.")] = None,
    limit: Annotated[int, typer.Option(min=2, help=LIMIT_HELP)] = LIMIT,
) -> None:
    """Run a Prefect worker until Ctrl-C or SIGTERM; then its shifts give their jobs back, and it ends.

    Example: durable-jobs worker --name first
    """
    grace = Settings.load().shutdown_grace + BEYOND_GRACE
    arguments = ["--pool", pool or read_manifest()[0]["work_pool"]["name"], "--limit", str(limit)]
    command = [
        sys.executable,
        "-m",
        "prefect",
        "worker",
        "start",
        *arguments,
        *(["--name", name] if name else []),
    ]
    with Interrupts() as interrupts:
        interrupts.may_raise = False
        # In a session of its own: Ctrl-C in a terminal reaches only us, who know the order.
        process = psutil.Popen(command, start_new_session=True)
        ask_for_pass()
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if interrupts.wait(LOOK_EVERY):
                _stop(process, grace, interrupts)
        code = process.wait()
    raise typer.Exit(0 if interrupts.count else code or 1)


def _stop(worker_process: psutil.Process, grace: timedelta, interrupts: Interrupts) -> None:
    """Stop the flow runs with their grace, then the worker that started them."""
    runs = running(worker_process.children(recursive=True), FLOW_RUN_PROGRAMS)
    stop(runs, grace, lambda: interrupts.is_urgent)
    stop([worker_process], WORKER_PATIENCE, lambda: False)
