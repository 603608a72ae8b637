"""One API process for all tests of a worker, on a database that each test finds empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support.api_server import PATIENT, ApiServer, served
from tests.support.cluster import Urls, empty
from tests.support.command import Command
from tests.support.probes import PgProbe

WORK = str(Path(__file__).with_name("work.py"))


@pytest.fixture(scope="session")
def shared_api(worker_urls: Urls) -> Iterator[ApiServer]:
    """The API with tokens."""
    with served(worker_urls.application, modules=WORK, **PATIENT) as server:
        yield server


@pytest.fixture
def api(shared_api: ApiServer, owner_connection: psycopg.Connection) -> ApiServer:
    """The API on an empty database."""
    empty(owner_connection)
    give_up = time.monotonic() + 60
    # A test before may have cut its connections: the first who uses one finds that.
    while not httpx.get(f"{shared_api.url}/health/ready").is_success and time.monotonic() < give_up:
        time.sleep(0.05)
    return shared_api


@pytest.fixture
def rows(owner_connection: psycopg.Connection) -> PgProbe:
    """Everything that the database holds."""
    return PgProbe(owner_connection)


@pytest.fixture
def client(api: ApiServer) -> Iterator[httpx.Client]:
    """A caller of the tenant `acme` with every scope."""
    with api.client() as caller:
        yield caller


@pytest.fixture
def command(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """The command on the database of the API, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    settings = {"DURABLE_JOBS_DATABASE_URL": database_url, "DURABLE_JOBS_MODULES": WORK}
    return Command(monkeypatch, capsys, settings)
