"""LISTEN on a connection of its own. Polling alone is enough: a lost notification only costs time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import structlog

logger = structlog.get_logger(__name__)

LONGEST_PAUSE_S = 5.0


async def listen(
    options: dict[str, Any], on_queue: Callable[[str], None], on_cancel: Callable[[str], None]
) -> None:
    """Call back for every notification until cancelled, reconnecting as needed."""
    pause = 0.1
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(**options) as connection:
                await connection.execute("LISTEN durable_jobs")
                await connection.execute("LISTEN durable_jobs_cancel")
                pause = 0.1
                # What happened while nobody listened: look everywhere once.
                on_queue("")
                async for notification in connection.notifies():
                    (on_queue if notification.channel == "durable_jobs" else on_cancel)(notification.payload)
        except psycopg.Error as error:
            logger.warning("not woken by the database, polling", error=str(error).partition("\n")[0])
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)
