"""Asks Prefect for as long as it does not answer: what waits for a flow run does not fail with an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
"""Clients of one process that ask at the same time; everybody else waits without one."""
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=30)
REFUSALS = frozenset({400, 404, 409, 422})
"""Answers that asking again does not change."""

_gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def until_answered(ask: Callable[[PrefectClient], Awaitable[T]]) -> T:
    """Return what Prefect answers, however long it is away.

    Raises:
        ObjectNotFound: what was asked for does not exist.
        PrefectHTTPStatusError: Prefect refuses the request itself.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            async with _gate(), get_client() as client:
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


def _gate() -> asyncio.Semaphore:
    return _gates.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))
