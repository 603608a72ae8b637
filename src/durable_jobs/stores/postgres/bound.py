"""A bound for calls on a sync connection, which the driver does not offer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg


@contextmanager
def hung_up_after(timeout: timedelta, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Cut the connection when the block takes longer.

    A server that is frozen still acknowledges packets, so no timeout of TCP ends the wait.
    """
    timer = threading.Timer(timeout.total_seconds(), _hang_up, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _hang_up(connection: psycopg.Connection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)
