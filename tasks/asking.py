"""Asks Prefect for as long as it does not answer: what waits for a flow run does not fail with an outage.

All who ask in one event loop share one client, which is open while anybody asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from weakref import WeakKeyDictionary

import httpx
import structlog
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError

logger = structlog.get_logger(__name__)

T = TypeVar("T")

AT_ONCE = 8
"""Requests of one event loop at the same time."""
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
REFUSALS = frozenset({400, 404, 409, 422})
"""Answers that asking again does not change."""


class _Shared:
    """The client of one event loop, and how many use it."""

    def __init__(self) -> None:
        self.users = 0
        self.opening = asyncio.Lock()
        self.gate = asyncio.Semaphore(AT_ONCE)
        self.client: PrefectClient | None = None


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()


@asynccontextmanager
async def shared_client() -> AsyncIterator[PrefectClient]:
    """Use the event loop's one client."""
    shared = _shared.setdefault(asyncio.get_running_loop(), _Shared())
    shared.users += 1
    try:
        async with shared.opening:
            if shared.client is None:
                shared.client = await get_client().__aenter__()
        yield shared.client
    finally:
        shared.users -= 1
        if shared.users == 0 and shared.client is not None:
            client, shared.client = shared.client, None
            await client.__aexit__(None, None, None)


async def until_answered(ask: Callable[[PrefectClient], Awaitable[T]]) -> T:
    """Return what Prefect answers, however long it is away.

    Raises:
        ObjectNotFound: what was asked for does not exist.
        PrefectHTTPStatusError: Prefect refuses the request itself.
    """
    pause = FIRST_PAUSE
    async with shared_client() as client:
        while True:
            try:
                async with _shared[asyncio.get_running_loop()].gate:
                    return await ask(client)
            except PrefectHTTPStatusError as error:
                if error.response.status_code in REFUSALS:
                    raise
                why = f"it answers {error.response.status_code}"
            except (httpx.HTTPError, OSError) as error:
                why = type(error).__name__
            logger.warning("a flow run waits for Prefect", why=why, again_in_s=pause.total_seconds())
            await asyncio.sleep(pause.total_seconds())
            pause = min(2 * pause, LONGEST_PAUSE)
