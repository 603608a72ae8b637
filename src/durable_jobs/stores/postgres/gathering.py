"""Registrations that come while others are being written go together in the next statement.

A lone caller waits for nobody. Callers share the cost of a statement and of its commit, never a failure:
when a statement for several is refused, each is registered by itself. When the store does not answer one
statement, those who wait for the next are told at once, so that nobody waits twice the bound.

Requests with an idempotency key do not come here: one may have to wait for a transaction that uses its
key, and nobody should wait with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from durable_jobs.errors import StoreUnavailable
from durable_jobs.jobs import NewJob
from durable_jobs.stores.protocols import Registered

IN_FLIGHT = 2
"""Statements of one kind at once, before callers wait for the next one."""
MOST = 100
"""Requests in one statement."""

Write = Callable[[str, Sequence[NewJob]], Awaitable[list[Registered]]]


class Waiting(NamedTuple):
    """A request, and where its caller waits."""

    job: NewJob
    answer: asyncio.Future[Registered]


class Kind:
    """Requests that one statement can take: of one tenant and of one type."""

    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        """Nobody is there."""
        self.waiting: list[Waiting] = []
        self.in_flight = 0

    def take(self) -> list[Waiting]:
        """Take the next requests; those whose caller has gone are left out."""
        here = [one for one in self.waiting if not one.answer.done()]
        self.waiting = here[MOST:]
        return here[:MOST]

    def take_all(self) -> list[Waiting]:
        """Take everybody who waits."""
        waiting, self.waiting = self.waiting, []
        return waiting


class Gathering:
    """Registers single requests, together when there are many."""

    def __init__(self, write: Write) -> None:
        """`write` inserts requests of one kind, all or none."""
        self._write = write
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def register(self, tenant: str, job: NewJob) -> Registered:
        """Register one request without a key.

        Raises:
            QueueFull, StoreUnavailable: see `JobsStore.register_idempotent`.
        """
        name = (tenant, *job[1:4], *job[5:6], *job[7:10], job.submitted_by)
        kind = self._kinds.setdefault(name, Kind())
        if kind.in_flight >= IN_FLIGHT:
            answer: asyncio.Future[Registered] = asyncio.get_running_loop().create_future()
            kind.waiting.append(Waiting(job, answer))
            return await answer
        kind.in_flight += 1
        try:
            return (await self._write(tenant, [job]))[0]
        except StoreUnavailable as error:
            _refuse(kind.take_all(), error)
            raise
        finally:
            self._go_on(tenant, name, kind)

    async def close(self) -> None:
        """Give up what is being written; its callers are told."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _go_on(self, tenant: str, name: tuple[object, ...], kind: Kind) -> None:
        if batch := kind.take():
            task = asyncio.create_task(self._write_together(tenant, name, kind, batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        kind.in_flight -= 1
        if not kind.in_flight and not kind.waiting:
            self._kinds.pop(name, None)

    async def _write_together(
        self, tenant: str, name: tuple[object, ...], kind: Kind, batch: list[Waiting]
    ) -> None:
        try:
            await self._answer(tenant, kind, batch)
            # Those who were answered may have more: let them come in time for the next statement.
            await asyncio.sleep(0)
        finally:
            for one in batch:
                if not one.answer.done():
                    one.answer.cancel()
            self._go_on(tenant, name, kind)

    async def _answer(self, tenant: str, kind: Kind, batch: list[Waiting]) -> None:
        try:
            registered = await self._write(tenant, [one.job for one in batch])
        except StoreUnavailable as error:
            # Who waited for this statement has waited as long as one call may take.
            _refuse(batch, error)
            _refuse(kind.take_all(), error)
        except Exception as error:  # noqa: BLE001 -- whatever it is belongs to one of the callers
            if len(batch) == 1:
                _refuse(batch, error)
                return
            # One of them is refused, or there is no room for all: each finds out for itself.
            for one in batch:
                await self._answer(tenant, kind, [one])
        else:
            for one, answer in zip(batch, registered, strict=True):
                if not one.answer.done():
                    one.answer.set_result(answer)


def _refuse(batch: list[Waiting], error: Exception) -> None:
    for one in batch:
        if not one.answer.done():
            one.answer.set_exception(error if len(batch) == 1 else type(error)(*error.args))
