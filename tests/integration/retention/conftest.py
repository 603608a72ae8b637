"""An empty database, its owner, and the application's store."""

from __future__ import annotations

import psycopg
import pytest

from durable_jobs.stores.postgres import PgJobsStore


@pytest.fixture
def owner(pg_store: PgJobsStore, owner_connection: psycopg.Connection) -> psycopg.Connection:
    """The owner's connection to the store's database."""
    return owner_connection
