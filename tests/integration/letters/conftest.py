"""One real Prefect server for everything about events and dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.prefect_server import PrefectServer


@pytest.fixture(scope="module")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A server with a login, used by this process until the module ends: others use the session's own."""
    server = PrefectServer(tmp_path_factory.mktemp("prefect"))
    server.start()
    with server.in_use():
        yield server
    server.kill()
