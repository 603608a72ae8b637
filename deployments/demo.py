"""`durable-jobs demo`: the whole stack in a temporary folder, with real documents to archive."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from durable_jobs.deployments import environment
from durable_jobs.deployments.demo_folder import HOME, demo_folder, sweep_killed_demos
from durable_jobs.deployments.demo_kill import ShiftKiller
from durable_jobs.deployments.demo_letter import LATE, LateDocument
from durable_jobs.deployments.demo_prefect import DemoPrefect
from durable_jobs.deployments.demo_view import counts_view, outcomes, totals
from durable_jobs.deployments.demo_work import Acts, archive_all, documents_below
from durable_jobs.deployments.progress import Progress
from durable_jobs.deployments.running import run_stack
from durable_jobs.deployments.stack import Stack, StackOptions
from durable_jobs.documents.samples import write_large, write_samples
from durable_jobs.embedded.ports import free_port
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore

DOCUMENTS_HELP = "Archive the documents of this folder; without it some are made for the purpose."
# An accident is noticed sooner than in earnest, where a busy machine must not be taken for a dead one.
HEARTBEAT, STALE = timedelta(seconds=1), timedelta(seconds=6)
KEEP_HELP = "Keep everything running after the outcomes, to look around, until Ctrl-C."


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("demo")(demo)


def demo(
    documents: Annotated[Path | None, typer.Option(help=DOCUMENTS_HELP)] = None,
    keep: Annotated[bool, typer.Option("--keep", help=KEEP_HELP)] = False,
) -> None:
    """Archive real documents with Postgres and Prefect in a temporary folder, and show what became of each."""
    chosen = documents_below(documents) if documents is not None else None
    progress = Progress()
    with demo_folder() as folder:
        if swept := sweep_killed_demos():
            progress.report(f"Removed what {swept} killed demos had left behind")
        # The documents may be anywhere, which is a matter of trust outside of development.
        settings = Settings.load(
            environment="development", heartbeat_interval=HEARTBEAT, running_stale_after=STALE
        )
        stack = Stack(StackOptions(folder / HOME, free_port(), None, settings), progress.report)
        paths = chosen if chosen is not None else _samples(folder / "documents")
        progress.report(
            f"Documents: {len(paths)} in {documents or folder / 'documents'}, and {LATE}, which is not there yet"
        )
        hint = "(Ctrl-C stops it)" if keep else "(to look around there: durable-jobs demo --keep)"
        if not run_stack(stack, lambda: _work(stack, settings, paths, folder, progress, hint), keep=keep):
            raise typer.Exit(130)


def _samples(folder: Path) -> list[Path]:
    """Make documents; those in the middle take long enough for the shift to be killed at work."""
    paths = write_samples(folder)
    middle = len(paths) // 2
    return [*paths[:middle], *write_large(folder), *paths[middle:]]


def _work(
    stack: Stack, settings: Settings, paths: list[Path], folder: Path, progress: Progress, hint: str
) -> None:
    # From here on this process is an application of its own stack.
    os.environ.update(environment.application_environment(settings, stack.home, stack.database_url))
    progress.report(
        f"Archiving: one job a document, executed by the Prefect flow execute-jobs, {stack.ui_url}"
    )
    with counts_view(progress.console) as view:

        def acts(store: PgJobsStore) -> Acts:
            prefect = DemoPrefect(stack.api_url, stack.ui_url)
            return Acts(
                ShiftKiller(store, prefect, settings.running_stale_after, view.tell),
                LateDocument(store, prefect, folder, view.tell),
            )

        jobs, recovery, second_try = asyncio.run(
            archive_all(paths, folder / "archive", view.show, stack.watch, acts)
        )
    progress.console.print(outcomes(jobs))
    progress.report(f"{totals(jobs)}")
    progress.report(str(recovery) if recovery else "The shift was never met at work: nothing was killed")
    for line in second_try.lines():
        progress.report(line)
    progress.report(f"Prefect UI: {stack.ui_url} {hint}")
