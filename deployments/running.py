"""Runs a stack for as long as it is wanted: started, used, kept alive until a signal, and always stopped."""

from __future__ import annotations

from collections.abc import Callable

from durable_jobs.deployments.interrupts import Interrupts
from durable_jobs.deployments.stack import Stack

WATCH_EVERY = 0.5


def run_stack(stack: Stack, work: Callable[[], None], *, keep: bool) -> bool:
    """Start the stack, do the work and, if it is to be kept, go on until somebody asks to stop.

    Returns:
        False if a signal cut the start or the work short.
    """
    with Interrupts() as interrupts:
        stack.is_urgent = lambda: interrupts.is_urgent
        try:
            stack.start()
            work()
            interrupts.may_raise = False
            while keep and not interrupts.wait(WATCH_EVERY):
                stack.watch()
        except KeyboardInterrupt:
            return False
        finally:
            interrupts.may_raise = False
            stack.stop()
    return True
