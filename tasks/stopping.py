"""SIGTERM ends a flow run with its grace, instead of raising somewhere in the middle of it; Ctrl-C is noted."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from durable_jobs.executor.execution import Stop
from durable_jobs.executor.shift import Shift


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


@contextmanager
def noting_ctrl_c(note: Callable[[], None]) -> Iterator[None]:
    """Call `note` at SIGINT, before what acts on it: asyncio raises a second one amid whatever is running."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        note()
        before(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is handle:
            signal.signal(signal.SIGINT, before)


@contextmanager
def stopped_by_signals(shift: Shift) -> Iterator[None]:
    """Let SIGTERM end a shift with its grace, and have it know of a Ctrl-C."""
    with on_sigterm(lambda: shift.leave("told to stop", Stop.SHUTDOWN)), noting_ctrl_c(shift.note_interrupt):
        yield
