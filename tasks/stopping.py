"""SIGTERM ends a flow run with its grace, instead of raising somewhere in the middle of it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` on the event loop at SIGTERM inside the block; elsewhere than in the main thread do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGTERM)
    loop.add_signal_handler(signal.SIGTERM, stop)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        if before is not None:
            signal.signal(signal.SIGTERM, before)
