"""Entry point of the command `durable-jobs`.

Commands that need Prefect live outside of src and are found by the name of an entry point, so that
every other command starts without loading Prefect.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from durable_jobs.cli import (
    acting,
    checking,
    configured,
    duty,
    effects,
    pausing,
    purging,
    redis_checks,
    serving,
    showing,
    submitting,
    tokens,
    where,
)
from durable_jobs.cli.output import say
from durable_jobs.errors import BadInput, DurableJobsError

COMMANDS = "durable_jobs.commands"
INTERRUPTED = 130

app = typer.Typer(
    name="durable-jobs",
    help="Durable jobs for people who already run Prefect and Postgres.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

for module in (
    submitting,
    showing,
    acting,
    pausing,
    purging,
    duty,
    effects,
    configured,
    checking,
    redis_checks,
    serving,
    tokens,
):
    module.register(app)


@app.callback()
def choose(
    context: typer.Context,
    api_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Work through this HTTP API instead of the database; see DURABLE_JOBS_TOKEN."
        ),
    ] = None,
) -> None:
    """Durable jobs for people who already run Prefect and Postgres."""
    where.choose(api_url, context.invoked_subcommand)


def main() -> None:
    """Run the command; every error of ours is one sentence and an exit code."""
    _add_commands(sys.argv[1:])
    try:
        _refuse_broken_text(sys.argv[1:])
        app()
    except DurableJobsError as error:
        say(f"error: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _add_commands(arguments: list[str]) -> None:
    """Load the command that is asked for, or all of them for the help."""
    points = entry_points(group=COMMANDS)
    asked = _command(arguments)
    for point in points:
        if point.name == asked or asked in ("", "--help"):
            point.load()(app)


def _command(arguments: list[str]) -> str:
    """Return the command's name, behind --api-url if that is given."""
    rest = list(arguments)
    while rest and rest[0].startswith("--api-url"):
        rest = rest[1:] if "=" in rest[0] else rest[2:]
    return rest[0] if rest else ""


def _refuse_broken_text(arguments: list[str]) -> None:
    for number, argument in enumerate(arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"argument {number} is not UTF-8: {argument!r}") from error
