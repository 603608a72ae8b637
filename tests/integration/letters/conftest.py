"""One real Prefect server for everything about events and dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prefect.events.worker import EventsWorker

from tests.support.prefect_server import PrefectServer


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A server with a login, used by this process until the module ends: others use the session's own."""
    server = PrefectServer(tmp_path_factory.mktemp("prefect"))
    server.start()
    # Prefect sends a process's own events to the first server that the process used, until they are drained.
    EventsWorker.drain_all(timeout=30)
    with server.in_use():
        yield server
        EventsWorker.drain_all(timeout=30)
    server.kill()
