"""`check`: a doctor. It looks at every part that jobs need, and says for each fault what to do.

It never stops at the first fault: what cannot be told because of another fault is unknown.
"""

from __future__ import annotations

import asyncio
import sys

import typer

from durable_jobs.cli.arguments import Json
from durable_jobs.cli.checks.findings import Finding, Status, worst
from durable_jobs.cli.output import answer, answer_json, printable

_COLOURS = {Status.OK: "green", Status.WARNING: "yellow", Status.FAILED: "red", Status.UNKNOWN: "cyan"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("check")(check)


def check(as_json: Json = False) -> None:
    """Look at everything that jobs need, and say what to do about each fault; exit 1 if something failed.

    A warning works for now; unknown could not be told. With --json: {"status": ..., "checks": [...]}.

    Example: durable-jobs check
    """
    from durable_jobs.cli.examining import examine  # httpx and yaml are needed only here
    from durable_jobs.cli.running import quiet_logs

    quiet_logs()
    findings = asyncio.run(examine())
    status = worst(findings)
    if as_json:
        answer_json({"status": str(status), "checks": [finding.as_json() for finding in findings]})
    else:
        width = max(len(finding.name) for finding in findings)
        answer("\n".join(_lines(finding, width) for finding in findings))
    if status is Status.FAILED:
        raise typer.Exit(1)


def _lines(finding: Finding, width: int) -> str:
    status = str(finding.status).ljust(7)
    if sys.stdout.isatty():
        status = typer.style(status, fg=_COLOURS[finding.status])
    line = f"{status}  {finding.name.ljust(width)}  {printable(finding.message)}"
    if finding.way_out is None:
        return line
    return f"{line}\n{' ' * (9 + width)}  -> {printable(finding.way_out)}"
