"""What the demo shows: counters while jobs run, then what became of each document and why.

On a terminal the counters stay in place; elsewhere a line is written whenever they have changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from durable_jobs.documents.location import path_of
from durable_jobs.documents.payload import ArchivedDocument
from durable_jobs.jobs import Job
from durable_jobs.states import JobState

MOST_ROWS = 60


@dataclass(frozen=True)
class Counts:
    """How far the work is, in jobs."""

    total: int
    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0

    @property
    def done(self) -> int:
        """Jobs that have ended."""
        return self.succeeded + self.failed

    def __str__(self) -> str:
        return (
            f"queued {self.queued}, running {self.running}, succeeded {self.succeeded}, failed {self.failed}"
            f" of {self.total}"
        )


class CountsView:
    """Shows counters as they change."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._shown: Counts | None = None
        self._told = ""

    def show(self, counts: Counts) -> None:
        """Show the counters, if they are news."""
        if counts == self._shown:
            return
        self._shown = counts
        if self._live is not None:
            self._live.update(_panel(counts, self._told))
        else:
            self._console.print(f"          {counts}", markup=False)

    def tell(self, text: str) -> None:
        """Show a sentence: under the counters in place of the one before, or on a line of its own."""
        self._told = text
        if self._live is None:
            self._console.print(f"          {text}", markup=False)
        elif self._shown is not None:
            self._live.update(_panel(self._shown, text))


@contextmanager
def counts_view(console: Console) -> Iterator[CountsView]:
    """Open the view that fits the console."""
    if not console.is_terminal:
        yield CountsView(console, None)
        return
    with Live(console=console, refresh_per_second=8) as live:
        yield CountsView(console, live)


def outcomes(jobs: Iterable[Job]) -> RenderableType:
    """Return a table of what became of each document; of many, the failed ones and as many others as fit."""
    by_failure = sorted(jobs, key=lambda job: (job.state is JobState.SUCCEEDED, job.created_at))
    table = Table(title="Outcomes", title_justify="left", header_style="bold")
    for name in ("Document", "State", "What happened"):
        table.add_column(name, overflow="fold")
    for job in by_failure[:MOST_ROWS]:
        table.add_row(escape(_name(job)), _state(job), escape(_story(job)))
    rest = len(by_failure) - MOST_ROWS
    return Group(table, Text(f"and {rest} more")) if rest > 0 else table


def totals(jobs: Iterable[Job]) -> str:
    """Return the sums in one sentence."""
    ended = list(jobs)
    archived = [result for job in ended if (result := _result(job)) is not None]
    stored = [result for result in archived if not result.already_stored]
    sizes = f"{_size(sum(r.size for r in stored))} in {_size(sum(r.stored_size for r in stored))}"
    return (
        f"{len(archived)} documents archived ({len(archived) - len(stored)} of them stored already), {sizes};"
        f" {len(ended) - len(archived)} failed, each with its reason above"
    )


def _panel(counts: Counts, told: str) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    for label, number, style in (
        ("queued", counts.queued, "cyan"),
        ("running", counts.running, "yellow"),
        ("succeeded", counts.succeeded, "green"),
        ("failed", counts.failed, "red"),
    ):
        grid.add_row(Text(label), Text(f"{number:5d}", style=style))
    return Group(
        grid,
        ProgressBar(total=max(counts.total, 1), completed=counts.done, width=60),
        Text(told, style="bold"),
    )


def _name(job: Job) -> str:
    # A name is any bytes on disk, and a terminal obeys some of them.
    name = os.fsencode(path_of(job.payload["source"]).name).decode(errors="replace")
    return "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )


def _state(job: Job) -> Text:
    return Text(job.state.value, style="green" if job.state is JobState.SUCCEEDED else "red")


def _story(job: Job) -> str:
    again = "executed again after its shift was killed: " if job.crash_count else ""
    if job.retry_count:
        again += f"retried {job.retry_count} times: " if job.retry_count > 1 else "retried: "
    result = _result(job)
    if result is None:
        return again + (job.failed_reason or "")
    if result.already_stored:
        return f"{again}the same content is stored already"
    sizes = f"{_size(result.size)} in {_size(result.stored_size)}"
    return f"{again}{result.media_type}, {sizes}, sha256 {result.sha256[:12]}"


def _result(job: Job) -> ArchivedDocument | None:
    if job.state is not JobState.SUCCEEDED or "value" not in job.result:
        return None
    return ArchivedDocument.model_validate(job.result["value"])


def _size(size: int) -> str:
    value = float(size)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
