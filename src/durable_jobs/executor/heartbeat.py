"""Tells the store that this process lives, from a thread of its own with a connection of its own.

Job code that blocks the event loop or burns the processor cannot starve it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.stores.protocols import Heart

logger = structlog.get_logger(__name__)


class Heartbeat:
    """Beats every `interval` between `start` and `stop`."""

    def __init__(self, heart: Heart, interval: timedelta, forgotten: Callable[[], None]) -> None:
        """`forgotten` is called from the thread when the store does not know the executor any more."""
        self._heart = heart
        self._interval = interval.total_seconds()
        self._forgotten = forgotten
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="durable-jobs-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; the last beat may still be on its way for a moment."""
        self._ending.set()
        self._thread.join(timeout=self._interval)

    def _beat_on(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    if not self._heart.beat():
                        self._forgotten()
                        return
                    pause = self._interval
                except StoreUnavailable as error:
                    logger.warning("heartbeat failed", error=str(error))
                    pause = min(self._interval, 1.0)
                self._ending.wait(pause)
        finally:
            self._heart.close()
