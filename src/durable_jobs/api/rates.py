"""How many submissions a tenant may make in a minute, over all processes of the API.

The count is kept in the database. Requests of a tenant that come while it is asked go together in the next call,
so that a flood of one tenant is one call at a time, for it and for nobody else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from datetime import timedelta

from durable_jobs.api.problems import Refusal, retry_after
from durable_jobs.stores.postgres.api_state import PgApiState, Taken

WINDOW = timedelta(minutes=1)
MOST = 1_000
"""Requests that one call asks for."""


class RateLimit:
    """Grants submissions, or refuses them with the time to wait."""

    def __init__(self, state: PgApiState, limit: int) -> None:
        """`limit` is for a minute and a tenant; 0 grants everything."""
        self._state, self._limit = state, limit
        self._waiting: dict[str, deque[asyncio.Future[Taken]]] = {}
        self._asking: set[asyncio.Task[None]] = set()

    async def take(self, tenant: str) -> None:
        """Take one submission of the tenant.

        Raises:
            Refusal: 429, with a time after which one is free.
            StoreUnavailable: the count cannot be had.
        """
        if not self._limit:
            return
        answer: asyncio.Future[Taken] = asyncio.get_running_loop().create_future()
        if tenant in self._waiting:
            self._waiting[tenant].append(answer)
        else:
            self._waiting[tenant] = deque([answer])
            task = asyncio.create_task(self._ask(tenant))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        taken = await answer
        if not taken.granted:
            raise Refusal(
                429,
                "rate-limited",
                f"tenant {tenant!r} has made the {self._limit} submissions that it may make in a minute; try again"
                " after the time in Retry-After (DURABLE_JOBS_API_RATE_LIMIT)",
                headers=retry_after(taken.wait.total_seconds()),
            )

    async def close(self) -> None:
        """Give up what is being asked."""
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    async def _ask(self, tenant: str) -> None:
        waiting = self._waiting[tenant]
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), MOST))]
                await self._answer(tenant, [one for one in batch if not one.done()])
        finally:
            del self._waiting[tenant]
            for one in waiting:
                one.cancel()

    async def _answer(self, tenant: str, batch: list[asyncio.Future[Taken]]) -> None:
        if not batch:
            return
        try:
            taken = await self._state.take_rate(tenant, self._limit, len(batch))
        except Exception as error:  # noqa: BLE001 -- whatever it is belongs to those who asked
            for one in batch:
                if not one.done():
                    one.set_exception(error if len(batch) == 1 else type(error)(*error.args))
            return
        for n, one in enumerate(batch):
            if not one.done():
                one.set_result(taken._replace(granted=int(n < taken.granted)))
