"""The contract holds for each store, and for Postgres behind a transaction pooler too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from durable_jobs.stores.memory import InMemoryJobsStore
from tests.conftest import AnyStore
from tests.support import pgbouncer
from tests.support.cluster import Urls
from tests.support.stores import open_store


@pytest.fixture(scope="session")
def pooled_url(worker_urls: Urls) -> Iterator[str]:
    """The application's URL through PgBouncer in transaction mode with two connections."""
    if pgbouncer.program() is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    with pgbouncer.before(worker_urls.application) as url:
        yield url


@pytest.fixture(params=["postgres", "pgbouncer", "memory"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[AnyStore]:
    """Each store in turn, empty."""
    if request.param == "memory":
        yield InMemoryJobsStore()
        return
    url = request.getfixturevalue("database_url")
    options = {}
    if request.param == "pgbouncer":
        url = request.getfixturevalue("pooled_url")
        options = {"prepared_statements": False}
    async with open_store(url, **options) as opened:
        yield opened
