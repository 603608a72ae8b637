"""Claims jobs into free places, and sleeps when there is nothing to claim.

A queue that a full claim found empty is left alone until it is woken or polled. A busy queue is
claimed from its fronts, with a full claim at least every second: cheap under a held snapshot, and a
job that committed late waits no longer than that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.bounds import QueueBounds
from durable_jobs.jobs import ClaimedJob
from durable_jobs.stores.protocols import Front, JobsOperator

logger = structlog.get_logger(__name__)

BATCH = 250
MOST_FRONT_TENANTS = 20
FULL_CLAIM_EVERY_S = 1.0
GATHER_S = 0.01
"""How long freed places are gathered before a small claim."""
AWAY_PAUSE_S = 1.0


class Claimer:
    """Keeps the free places of one executor filled."""

    def __init__(
        self,
        store: JobsOperator,
        executor_id: UUID,
        bounds: QueueBounds,
        start: Callable[[ClaimedJob], None],
        *,
        poll_interval: timedelta,
    ) -> None:
        """`start` is called for each claimed job."""
        self._store = store
        self._executor_id = executor_id
        self._bounds = bounds
        self._start = start
        self._poll_s = poll_interval.total_seconds()
        self._polled_at = 0.0
        self._empty: set[str] = set()
        self._turns = list(bounds.queues)
        self._after = dict.fromkeys(bounds.queues, "")
        self._fronts: dict[str, dict[tuple[str, int], Front]] = {}
        self._full_at = dict.fromkeys(bounds.queues, 0.0)
        self._gathering: dict[str, float] = {}
        self._woken = bounds.freed
        self._idle = False
        self._away = False

    def wake(self, queue: str) -> None:
        """Look at a queue again; "" for all."""
        if queue:
            self._empty.discard(queue)
        else:
            self._empty.clear()
        self._woken.set()

    @property
    def found_nothing(self) -> bool:
        """Whether every queue was empty when last looked at."""
        return len(self._empty) == len(self._bounds.queues)

    def only_lacks_places(self) -> set[str]:
        """Return the queues not found empty, if all of them are held by other executors alone."""
        unseen = set(self._bounds.queues) - self._empty
        return set() if any(self._bounds.held[queue] for queue in unseen) else unseen

    async def fill(self) -> bool:
        """Claim once for every queue with free places; True when anything was claimed."""
        # Whatever wakes us from here on is not missed by the next sleep.
        self._woken.clear()
        if time.monotonic() - self._polled_at > self._poll_s:
            self._polled_at = time.monotonic()
            self._empty.clear()
        claimed = 0
        for queue in list(self._turns):
            if queue not in self._empty and (places := self._places(queue)):
                # Behind the others: a slow store must not keep us at the first queues for ever.
                self._turns.remove(queue)
                self._turns.append(queue)
                claimed += await self._claim(queue, places)
        return claimed > 0

    async def sleep(self) -> None:
        """Wait for a wake-up, a freed place or the next poll."""
        if not self._idle and not self._gathering:
            await self._say_idle(True)
            # What was registered before the store knew that we sleep woke nobody.
            self._empty.clear()
            return
        pause = GATHER_S if self._gathering else AWAY_PAUSE_S if self._away else self._poll_s
        try:
            async with asyncio.timeout(pause):
                await self._woken.wait()
        except TimeoutError:
            return

    def _places(self, queue: str) -> int:
        places = min(self._bounds.free(queue), BATCH)
        worthwhile = min(BATCH, max(1, self._bounds.held[queue] // 2))
        if places >= worthwhile or self._bounds.in_flight[queue] == 0:
            self._gathering.pop(queue, None)
            return places
        if places == 0:
            return 0
        since = self._gathering.setdefault(queue, time.monotonic())
        if time.monotonic() - since < GATHER_S:
            return 0
        del self._gathering[queue]
        return places

    async def _claim(self, queue: str, places: int) -> int:
        fronts = self._usable_fronts(queue)
        self._bounds.take(queue, places)
        got = 0
        try:
            claim = await self._store.claim(
                self._executor_id, queue, places, after_tenant=self._after[queue], fronts=fronts
            )
            got = len(claim.jobs)
            self._away = False
        except StoreUnavailable as error:
            self._away = True
            logger.warning("no claim", queue=queue, error=str(error))
            return 0
        finally:
            if got < places:
                self._bounds.return_unused(queue, places - got)
        if fronts is None:
            self._full_at[queue] = time.monotonic()
            self._fronts[queue] = {}
            if got < places:
                self._empty.add(queue)
        if got:
            self._after[queue] = claim.jobs[-1].tenant_id
            self._fronts[queue].update({(f.tenant_id, f.claim_order): f for f in claim.fronts})
        if got < places:
            # The fronts are used up: the next claim looks everywhere.
            self._fronts[queue] = {}
        elif self._idle:
            await self._say_idle(False)
        for job in claim.jobs:
            self._start(job)
        return got

    def _usable_fronts(self, queue: str) -> list[Front] | None:
        fronts = self._fronts.get(queue)
        if not fronts or time.monotonic() - self._full_at[queue] > FULL_CLAIM_EVERY_S:
            return None
        if len({tenant for tenant, _ in fronts}) > MOST_FRONT_TENANTS:
            return None
        return list(fronts.values())

    async def _say_idle(self, idle: bool) -> None:
        try:
            await self._store.set_idle(self._executor_id, idle)
        except StoreUnavailable as error:
            logger.warning("not known as idle", error=str(error))
        self._idle = idle
