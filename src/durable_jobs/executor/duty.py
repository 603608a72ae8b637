"""Who is on duty: the part of each queue's bound that this shift holds, and when it is relieved.

The newest `crew` beating shifts claim. An older one stops as soon as it sees them, so there is no
moment without a claiming shift, and a shift stays when no successor beats, or none that executes its types.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.bounds import QueueBounds
from durable_jobs.executor.overseeing import Overseer
from durable_jobs.executor.served import Served
from durable_jobs.settings import Settings
from durable_jobs.stores.protocols import Executor, ExecutorStore

logger = structlog.get_logger(__name__)

TICK = timedelta(seconds=1)
BEATS = 3
"""Heartbeats after which an executor counts as silent."""


class Duty:
    """Renews leases, watches for relief, and asks for an audit with every heartbeat."""

    def __init__(
        self,
        store: ExecutorStore,
        executor: Executor,
        bounds: QueueBounds,
        served: Served,
        settings: Settings,
        overseer: Overseer,
        leave: Callable[[str], None],
        given_up: Callable[[], None],
    ) -> None:
        """Nothing is leased before the first `lease`.

        `given_up` is called when the store does not know this executor any more.
        """
        self._store = store
        self._executor = executor
        self._bounds = bounds
        self._served = served
        self._crew = settings.crew
        self._heartbeat_s = settings.heartbeat_interval.total_seconds()
        self._tick_s = min(TICK.total_seconds(), self._heartbeat_s / 2)
        self._silent_after = BEATS * settings.heartbeat_interval
        self._overseer = overseer
        self._leave = leave
        self._given_up = given_up
        self._leasing = asyncio.Lock()
        self._draining = False
        self._known_as_draining = False

    async def run(self) -> None:
        """Tick until cancelled."""
        elapsed = 0.0
        while True:
            await asyncio.sleep(self._tick_s if self._has_its_share() else self._tick_s / 4)
            elapsed += self._tick_s
            try:
                if self._draining and not self._known_as_draining:
                    await self._tell_draining()
                await self.lease()
                await self._look_around()
            except StoreUnavailable as error:
                logger.warning("leases not renewed", error=str(error))
            if elapsed >= self._heartbeat_s:
                elapsed = 0.0
                self._overseer.audit_soon()

    async def lease(self) -> None:
        """Renew this shift's part of every queue's concurrency."""
        # One after the other: what is in flight must not grow between telling it and the answer.
        async with self._leasing:
            uses = self._bounds.begin_renewal(draining=self._draining)
            granted: dict[str, int] | None = None
            try:
                granted = await self._store.lease_queues(
                    self._executor.executor_id, uses, stale_after=self._silent_after
                )
            finally:
                self._bounds.end_renewal(uses, granted)

    async def drain(self) -> None:
        """Tell that this shift claims no more, and let its part of the bounds go as jobs end."""
        self._draining = True
        try:
            await self._tell_draining()
            await self.lease()
        except StoreUnavailable as error:
            logger.warning("not known as draining, told again soon", error=str(error))

    async def _tell_draining(self) -> None:
        # Until it is told, the store counts this shift as one that claims, and nobody replaces it.
        await self._store.set_draining(self._executor.executor_id)
        self._known_as_draining = True

    def _has_its_share(self) -> bool:
        return self._draining or any(self._bounds.held.values()) or not self._bounds.queues

    async def _look_around(self) -> None:
        """See whether this shift is relieved, or was given up while it could not beat."""
        newer: list[Executor] = []
        for view in await self._store.executors():
            if view.executor.executor_id == self._executor.executor_id:
                break
            if view.executor.in_crew and not view.draining and view.silence < self._silent_after:
                newer.append(view.executor)
        else:
            self._given_up()
            return
        if self._executor.in_crew and not self._draining and await self._served.hand_over(newer, self._crew):
            self._leave("relieved")
