"""A queue: a bound on what runs and on what waits, declared in code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from durable_jobs.errors import InvalidDeclaration

Isolation = Literal["shared", "flow_run"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of jobs.

    Args:
        name: lower-case letters, digits, `_`, `.` and `-`; 63 characters at most.
        concurrency: how many jobs of this queue run at once, over all processes.
        max_pending: how many jobs may wait; `None` for no bound.
        isolation: "shared" runs jobs in the shift's process, "flow_run" each in its own flow run.

    Raises:
        InvalidDeclaration: for a name or a number that cannot work.
    """

    name: str
    concurrency: int = 10
    max_pending: int | None = 1000
    isolation: Isolation = "shared"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidDeclaration(
                f"queue name {self.name!r}: use lower-case letters, digits, '_', '.' and '-', 63 at most"
            )
        if self.concurrency < 1:
            raise InvalidDeclaration(
                f"queue {self.name!r}: concurrency is {self.concurrency}, it must be at least 1;"
                " to hold a queue back, pause it"
            )
        if self.max_pending is not None and self.max_pending < 1:
            raise InvalidDeclaration(
                f"queue {self.name!r}: max_pending is {self.max_pending}, it must be at least 1 or None"
            )
        if self.isolation not in ("shared", "flow_run"):
            raise InvalidDeclaration(
                f"queue {self.name!r}: isolation is {self.isolation!r}, it must be 'shared' or 'flow_run'"
            )


BUILT_IN = (Queue("default"), Queue("fast", concurrency=10), Queue("deep", concurrency=5))
