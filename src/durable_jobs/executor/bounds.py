"""How many jobs of each queue this executor may have in flight.

A job is in flight from the moment its place is taken for a claim until its outcome is committed.
Invariant: in flight never passes what is leased, also while the lease is being renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from durable_jobs.queues import Queue
from durable_jobs.stores.protocols import QueueUse


class QueueBounds:
    """The leased part of each queue's concurrency, and what is used of it."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        """Nothing is leased yet."""
        self.queues = {queue.name: queue for queue in queues}
        self.held = dict.fromkeys(self.queues, 0)
        self.in_flight = dict.fromkeys(self.queues, 0)
        self._renewing = False
        self._let_go: set[str] = set()
        self.ended = 0
        """How many jobs have given their place back."""
        self.freed = asyncio.Event()

    def let_go(self, queues: Iterable[str]) -> None:
        """Ask for no more than what is in flight of these queues: others serve them."""
        self._let_go.update(queues)

    def free(self, queue: str) -> int:
        """Return how many more jobs may be claimed now; none while the lease is being renewed."""
        return 0 if self._renewing else max(0, self.held[queue] - self.in_flight[queue])

    def take(self, queue: str, places: int) -> None:
        """Take places before a claim."""
        self.in_flight[queue] += places

    def return_unused(self, queue: str, places: int) -> None:
        """Return places that were taken for a claim which brought fewer jobs."""
        self.in_flight[queue] -= places

    def give_back(self, queue: str) -> None:
        """Give the place of a job back whose outcome is committed, and wake whoever waits for one.

        A job that runs alone has no place in a queue's bound.
        """
        if queue in self.in_flight:
            self.in_flight[queue] -= 1
        self.ended += 1
        self.freed.set()

    def begin_renewal(self, *, draining: bool) -> list[QueueUse]:
        """Stop claims and say what must stay held."""
        self._renewing = True
        return [
            QueueUse(name, 0 if draining or name in self._let_go else queue.concurrency, self.in_flight[name])
            for name, queue in self.queues.items()
        ]

    def end_renewal(self, uses: list[QueueUse], granted: dict[str, int] | None) -> None:
        """Take over what was granted. Without an answer only what was in flight is sure to be ours."""
        for use in uses:
            self.held[use.queue] = use.in_flight if granted is None else granted.get(use.queue, 0)
        self._renewing = False
        self.freed.set()
