"""Asks for a reconcile pass as soon as a worker is there: after a power cut nobody waits for the next cron.

Passes step aside for each other, so one more does no harm; and a worker works without it.
"""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import httpx
import structlog
from prefect.exceptions import ObjectNotFound

from durable_jobs.tasks.runs import start_run

logger = structlog.get_logger(__name__)

RECONCILE = "jobs-reconcile/every-minute"
AGAIN_AFTER = timedelta(seconds=2)
# After this long the cron has come round anyway.
GIVE_UP_AFTER = timedelta(minutes=2)


def ask_for_pass() -> None:
    """Ask in the background, for as long as the Prefect server is not there yet."""
    threading.Thread(target=lambda: asyncio.run(_ask()), name="first-pass", daemon=True).start()


async def _ask() -> None:
    try:
        async with asyncio.timeout(GIVE_UP_AFTER.total_seconds()):
            while not await _asked():  # noqa: ASYNC110 -- another process
                await asyncio.sleep(AGAIN_AFTER.total_seconds())
    except TimeoutError:
        logger.warning("the first reconcile pass is left to its cron")


async def _asked() -> bool:
    try:
        await start_run(RECONCILE, {})
    except ObjectNotFound:
        # Nothing is deployed, or under other names: then there is nothing to ask for.
        return True
    except httpx.HTTPError:
        return False
    return True
