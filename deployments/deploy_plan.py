"""What a deployment would do: one step for each thing that must be so, looked at before anything is changed.

A step without work to do says `unchanged`; so a dry run and a real run decide the same way, and a second run
changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.markup import escape
from rich.table import Table


class Action(StrEnum):
    """What is to be done about a thing."""

    CREATE = "create"
    CHANGE = "change"
    UNCHANGED = "unchanged"
    NOTE = "note"
    """Nothing that this command changes, but worth knowing."""


_STYLES = {Action.CREATE: "green", Action.CHANGE: "yellow", Action.UNCHANGED: "dim", Action.NOTE: "cyan"}


@dataclass(frozen=True)
class Step:
    """One thing that must be so."""

    kind: str
    name: str
    action: Action
    detail: str = ""
    apply: Callable[[], Awaitable[None]] | None = field(default=None, repr=False)

    @property
    def is_to_do(self) -> bool:
        """Whether there is something to do."""
        return self.action in (Action.CREATE, Action.CHANGE)

    def as_json(self) -> dict[str, str]:
        """Return the step as JSON."""
        return {"kind": self.kind, "name": self.name, "action": self.action.value, "detail": self.detail}


def to_do(steps: Sequence[Step]) -> list[Step]:
    """Return the steps with something to do."""
    return [step for step in steps if step.is_to_do]


def plan_json(steps: Sequence[Step], *, dry_run: bool) -> dict[str, Any]:
    """Return the plan as JSON: what was done, or with `dry_run` what would be."""
    return {"dryRun": dry_run, "changed": len(to_do(steps)), "steps": [step.as_json() for step in steps]}


def plan_table(steps: Sequence[Step]) -> Table:
    """Return the plan as a table."""
    table = Table(header_style="bold")
    table.add_column("", no_wrap=True)
    table.add_column("What", no_wrap=True)
    table.add_column("Name", overflow="fold")
    table.add_column("Detail", overflow="fold")
    for step in steps:
        style = _STYLES[step.action]
        table.add_row(f"[{style}]{step.action}[/]", step.kind, escape(step.name), escape(step.detail))
    return table


def plan_sentence(steps: Sequence[Step], *, dry_run: bool) -> str:
    """Return the sum in one sentence."""
    count = len(to_do(steps))
    if not count:
        return "Everything is as it should be; nothing was changed."
    things = "1 thing" if count == 1 else f"{count} things"
    if dry_run:
        return f"{things} would be created or changed. Nothing was changed (--dry-run)."
    return f"{things} created or changed."
