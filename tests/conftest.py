"""Real parts for every test: one Postgres for the session, a database for each worker, both stores.

Under xdist the controller owns the cluster, so that no worker's end takes it away from another.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import hypothesis  # noqa: F401 -- its plugin imports it amid the first failure, where that may fail itself
import psycopg
import pytest

from durable_jobs.stores.memory import InMemoryJobsStore
from durable_jobs.stores.postgres import PgJobsStore
from tests.support.cluster import SessionCluster, Urls, create_database, drop_database, empty
from tests.support.probes import MemoryProbe, PgProbe, Probe
from tests.support.stores import open_store

_cluster = pytest.StashKey[SessionCluster]()
_urls = pytest.StashKey[Urls]()

AnyStore = PgJobsStore | InMemoryJobsStore


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist where the cluster is, which the first one makes start."""
    node.workerinput["postgres_urls"] = tuple(_started(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file in one worker: some share what is slow to start and build on one another."""
    from xdist.scheduler import LoadFileScheduling

    return LoadFileScheduling(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the cluster, whoever started it."""
    if (cluster := config.stash.get(_cluster, None)) is not None:
        cluster.stop()


def _started(config: pytest.Config) -> Urls:
    if _urls not in config.stash:
        config.stash[_cluster] = SessionCluster()
        config.stash[_urls] = config.stash[_cluster].start()
    return config.stash[_urls]


@pytest.fixture(scope="session")
def template_urls(request: pytest.FixtureRequest) -> Urls:
    """URLs of the migrated template database; make databases from it, do not connect to it."""
    given = getattr(request.config, "workerinput", {}).get("postgres_urls")
    return Urls(*given) if given else _started(request.config)


@pytest.fixture(scope="session")
def worker_urls(template_urls: Urls) -> Iterator[Urls]:
    """URLs of this worker's database."""
    name = f"jobs_{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
    yield create_database(template_urls, name)
    drop_database(template_urls, name)


@pytest.fixture(scope="session")
def owner_connection(worker_urls: Urls) -> Iterator[psycopg.Connection]:
    """The owner's connection, for what tests do behind the application's back."""
    with psycopg.connect(worker_urls.admin, autocommit=True) as connection:
        yield connection


@pytest.fixture
def urls(worker_urls: Urls, owner_connection: psycopg.Connection) -> Urls:
    """URLs of an empty database."""
    empty(owner_connection)
    return worker_urls


@pytest.fixture
def admin_url(urls: Urls) -> str:
    """The owner's URL of an empty database: a superuser, whom row-level security does not bind."""
    return urls.admin


@pytest.fixture
def database_url(urls: Urls) -> str:
    """The application's URL of an empty database."""
    return urls.application


@pytest.fixture
def new_database(template_urls: Urls) -> Iterator[Callable[[], Urls]]:
    """Make databases that only this test uses, to break or to restart what others share."""
    made: list[str] = []

    def make() -> Urls:
        made.append(f"own_{os.getpid()}_{len(made)}")
        return create_database(template_urls, made[-1])

    yield make
    for name in made:
        drop_database(template_urls, name)


@pytest.fixture
async def pg_store(database_url: str) -> AsyncIterator[PgJobsStore]:
    """The Postgres store on an empty database, as the application's role."""
    async with open_store(database_url) as store:
        yield store


@pytest.fixture(params=["postgres", "memory"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[AnyStore]:
    """Each store in turn, empty."""
    if request.param == "memory":
        yield InMemoryJobsStore()
        return
    async with open_store(request.getfixturevalue("database_url")) as opened:
        yield opened


@pytest.fixture
def probe(store: AnyStore, request: pytest.FixtureRequest) -> Probe:
    """Looks at everything that the store holds, whatever the tenant."""
    if isinstance(store, InMemoryJobsStore):
        return MemoryProbe(store)
    return PgProbe(request.getfixturevalue("owner_connection"))


@pytest.fixture(scope="session")
def prefect_harness(pytestconfig: pytest.Config) -> Iterator[None]:
    """A Prefect server with a database of its own, started when a test first asks for it."""
    from prefect.testing.utilities import prefect_test_harness

    # Each call of a flow leaves one connection of Prefect's client to the garbage collector. The first
    # line is for the tests to come, the second for the one that is running.
    pytestconfig.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")
    warnings.filterwarnings("ignore", "unclosed <socket.socket", ResourceWarning)

    with prefect_test_harness(server_startup_timeout=100):
        yield
