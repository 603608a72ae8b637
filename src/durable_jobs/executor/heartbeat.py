"""Tells the store that this process lives, from a thread of its own with a connection of its own.

Job code that blocks the event loop or burns the processor cannot starve it. Such code is healthy until
its job must stop: when the loop has stood still for long and holds a job that is overdue or cancelled,
nothing inside the process can end it, so the process ends itself and the reconciler settles the rest.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol
from uuid import UUID

import structlog

from durable_jobs.errors import StoreUnavailable
from durable_jobs.stores.protocols import Heart

logger = structlog.get_logger(__name__)


STUCK_S = 15.0
"""How long the event loop may stand still while a job must stop."""


class Watched(Protocol):
    """The event loop, as seen from the thread."""

    def stood_still(self) -> float:
        """Return for how long (s) the loop has not moved."""
        ...

    def unfinished(self) -> set[UUID]:
        """Return the claims whose code has not ended."""
        ...


class Heartbeat:
    """Beats every `interval` between `start` and `stop`."""

    def __init__(
        self, heart: Heart, interval: timedelta, forgotten: Callable[[], None], watched: Watched
    ) -> None:
        """`forgotten` is called from the thread when the store does not know the executor any more."""
        self._watched = watched
        self._heart = heart
        self._interval = interval.total_seconds()
        self._forgotten = forgotten
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="durable-jobs-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the beat that is on its way, for one interval at most."""
        self._ending.set()
        self._thread.join(timeout=self._interval)

    def _beat_on(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    if not self._heart.beat():
                        self._forgotten()
                        return
                    if self._watched.stood_still() > STUCK_S and self._heart.must_stop(
                        self._watched.unfinished()
                    ):
                        _end_process()
                    pause = self._interval
                except StoreUnavailable as error:
                    logger.warning("heartbeat failed", error=str(error))
                    pause = min(self._interval, 1.0)
                self._ending.wait(pause)
        finally:
            self._heart.close()


def _end_process() -> None:
    logger.critical("code that does not stop blocks this shift: its process ends itself")
    os.kill(os.getpid(), signal.SIGKILL)
