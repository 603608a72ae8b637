"""`durable-jobs up`: the whole stack on this machine until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr

from durable_jobs.deployments.progress import Progress
from durable_jobs.deployments.running import run_stack
from durable_jobs.deployments.stack import CONNECTION_FILE, Stack, StackOptions
from durable_jobs.settings import Settings

API_PORT_HELP = "Port of the HTTP API; its OpenAPI page is at /docs."
DATABASE_URL_HELP = (
    "Owner's URL of a Postgres of yours, not the embedded one. [DURABLE_JOBS_ADMIN_DATABASE_URL]"
)
NOTIFICATION_HELP = (
    "Block of Prefect that is told of CRITICAL events, as type-slug/name; it may be made later."
    " [DURABLE_JOBS_NOTIFICATION_BLOCK]"
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("up")(up)


def up(
    home: Annotated[Path | None, typer.Option(help="Folder of the data. [DURABLE_JOBS_HOME]")] = None,
    prefect_port: Annotated[int, typer.Option(help="Port of the Prefect server and its UI.")] = 4200,
    api_port: Annotated[int, typer.Option(help=API_PORT_HELP)] = 8000,
    database_url: Annotated[str | None, typer.Option(help=DATABASE_URL_HELP)] = None,
    notification_block: Annotated[str | None, typer.Option(help=NOTIFICATION_HELP)] = None,
) -> None:
    """Run Postgres, Prefect, all deployments and the HTTP API on this machine until Ctrl-C.

    A second start on the same home finds all data again.
    """
    told = {} if notification_block is None else {"notification_block": notification_block}
    settings = Settings.load(**told)
    url = database_url or _secret(settings.admin_database_url)
    progress = Progress()
    stack = Stack(StackOptions(home or settings.home, prefect_port, url, settings, api_port), progress.report)
    if not run_stack(stack, lambda: _announce(stack, progress), keep=True):
        raise typer.Exit(130)


def _announce(stack: Stack, progress: Progress) -> None:
    """Print the addresses, and `ready` on a line of its own for scripts that wait for it."""
    progress.line("")
    progress.line(f"Prefect UI   {stack.ui_url}")
    progress.line(f"HTTP API     {stack.http_api_url} (its page: /docs)")
    progress.line(f"Connect      source {stack.home / CONNECTION_FILE}")
    progress.line("Stop         Ctrl-C")
    progress.line("")
    progress.line("ready")


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None
