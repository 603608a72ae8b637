"""`durable-jobs up`: the whole stack on this machine until Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from pydantic import SecretStr
from rich.console import Console

from durable_jobs.deployments.interrupts import Interrupts
from durable_jobs.deployments.stack import CONNECTION_FILE, Stack, StackOptions
from durable_jobs.settings import Settings

WATCH_EVERY = 0.5
API_PORT_HELP = "Port of the HTTP API, which comes with a later release."
DATABASE_URL_HELP = (
    "Owner's URL of a Postgres of yours, not the embedded one. [DURABLE_JOBS_ADMIN_DATABASE_URL]"
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("up")(up)


def up(
    home: Annotated[Path | None, typer.Option(help="Folder of the data. [DURABLE_JOBS_HOME]")] = None,
    prefect_port: Annotated[int, typer.Option(help="Port of the Prefect server and its UI.")] = 4200,
    api_port: Annotated[int, typer.Option(help=API_PORT_HELP)] = 8000,  # noqa: ARG001 -- scripts may name it already
    database_url: Annotated[str | None, typer.Option(help=DATABASE_URL_HELP)] = None,
) -> None:
    """Run Postgres, Prefect and all deployments on this machine until Ctrl-C.

    A second start on the same home finds all data again.
    """
    settings = Settings.load()
    url = database_url or _secret(settings.admin_database_url)
    progress = Progress()
    stack = Stack(StackOptions(home or settings.home, prefect_port, url, settings), progress.report)
    if not run_until_stopped(stack, progress):
        raise typer.Exit(130)


def run_until_stopped(stack: Stack, progress: Progress) -> bool:
    """Start the stack, keep it running until a signal, stop it; return False if its start was interrupted."""
    with Interrupts() as interrupts:
        stack.is_urgent = lambda: interrupts.is_urgent
        try:
            stack.start()
            interrupts.may_raise = False
            progress.announce(stack)
            while not interrupts.wait(WATCH_EVERY):
                stack.watch()
        except KeyboardInterrupt:
            return False
        finally:
            interrupts.may_raise = False
            stack.stop()
            progress.report("Stopped")
    return True


class Progress:
    """Tells people what happens, with the seconds since the start."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()

    def report(self, message: str) -> None:
        """Print one line."""
        self._console.print(f"{time.monotonic() - self._began:6.1f} s  {message}", markup=False)

    def announce(self, stack: Stack) -> None:
        """Print the addresses, and `ready` on a line of its own for scripts that wait for it."""
        self._console.print(f"\nPrefect UI   {stack.ui_url}", markup=False)
        self._console.print(f"Connect      source {stack.home / CONNECTION_FILE}", markup=False)
        self._console.print("Stop         Ctrl-C\n", markup=False)
        self._console.print("ready", markup=False)


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None
