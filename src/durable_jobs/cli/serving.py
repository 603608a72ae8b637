"""`api`: serves the HTTP API until it is stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from durable_jobs.cli.running import declared
from durable_jobs.runtime import current_runtime


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("api")(api)


def api(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the port.")] = 1,
) -> None:
    """Serve the HTTP API until Ctrl-C. It needs no Prefect.

    Without DURABLE_JOBS_JWT_* it starts in development only, and only for this machine.

    Example: durable-jobs api --port 8000
    """
    from durable_jobs.api.serving import serve  # FastAPI loads slowly and only this needs it

    runtime = current_runtime()
    # A fault in a module is told here, once, instead of by each process.
    declared(runtime)
    serve(runtime.settings, host=host, port=port, workers=workers)
