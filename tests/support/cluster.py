"""One Postgres cluster for a whole test session, and a database of its own for each worker.

The schema is migrated once, into a template; a database made from it is ready in a fraction of a second.
The tests connect as the application's role, which row-level security binds.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from durable_jobs.embedded import PostgresCluster
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision

TEMPLATE = "durable_template"
# Data of tests need not survive the machine. That of a killed server must: synchronous_commit stays on.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "autovacuum_naptime": "5s",
}
_PATIENCE = 30
# What processes that a session shares have read once stays: the version of the schema, the API's keys.
_TABLES = (
    "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    " AND tablename NOT IN ('durable_jobs_version', 'api_keys')"
)


class Urls(NamedTuple):
    """How to reach the template: as the owner, and as the application."""

    admin: str
    application: str

    def of(self, database: str) -> Urls:
        """Return the URLs of another database of the same cluster."""
        return Urls(*(in_database(url, database) for url in self))


class SessionCluster:
    """A cluster in a temporary folder, removed with all its data."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="durable-jobs-tests-")
        # The server runs as an account of its own, which must pass through.
        Path(self._folder.name).chmod(0o711)
        self._cluster = PostgresCluster(Path(self._folder.name) / "home", settings=SETTINGS)

    def start(self) -> Urls:
        """Start it and migrate the template."""
        self._cluster.start()
        self._cluster.create_database(TEMPLATE)
        admin = self._cluster.admin_url(TEMPLATE)
        migrate(admin)
        return Urls(admin, provision(admin, secrets.token_urlsafe(16)))

    def stop(self) -> None:
        """Stop it and remove its folder."""
        self._cluster.remove()
        self._folder.cleanup()


def in_database(url: str, database: str) -> str:
    """Return the URL of another database of the same cluster."""
    return make_url(url).set(database=database).render_as_string(hide_password=False)


def create_database(template: Urls, name: str) -> Urls:
    """Make a migrated database."""
    with psycopg.connect(in_database(template.admin, "postgres"), autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(
                sql.Identifier(name), sql.Identifier(TEMPLATE)
            )
        )
    return template.of(name)


def drop_database(template: Urls, name: str) -> None:
    """Drop it, whoever is connected."""
    with psycopg.connect(in_database(template.admin, "postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def empty(connection: psycopg.Connection) -> None:
    """Remove every row; far quicker than a new database.

    What the test before killed may still be served, and hold locks in another order: it is tried again.
    """
    tables = [sql.Identifier(name) for (name,) in connection.execute(_TABLES)]
    truncate = sql.SQL("TRUNCATE {}").format(sql.SQL(", ").join(tables))
    give_up = time.monotonic() + _PATIENCE
    while True:
        try:
            connection.execute(truncate)
            return
        except psycopg.errors.DeadlockDetected:
            if time.monotonic() > give_up:
                raise
