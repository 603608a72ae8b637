"""A world of jobs with effects, and a provider."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from tests.integration.effects.provider import Provider, running_provider
from tests.integration.effects.world import World
from tests.support.probes import PgProbe


@pytest.fixture
def provider() -> Iterator[Provider]:
    """A provider that does its work."""
    with running_provider() as provider:
        yield provider


@pytest.fixture
def world(pg_store: PgJobsStore, database_url: str, owner_connection: psycopg.Connection) -> World:
    """Jobs in an empty database."""
    return World(pg_store, Settings.load(database_url=database_url), PgProbe(owner_connection))


@pytest.fixture
def letters(owner_connection: psycopg.Connection, database_url: str) -> Iterator[Callable[[], list[str]]]:
    """A table of the caller's in the jobs' database; returns the letters that are in it."""
    role = psycopg.conninfo.conninfo_to_dict(database_url)["user"]
    owner_connection.execute("CREATE TABLE letters (words text)")
    owner_connection.execute(f'GRANT ALL ON letters TO "{role}"')
    yield lambda: [words for (words,) in owner_connection.execute("SELECT words FROM letters")]
    owner_connection.execute("DROP TABLE letters")
