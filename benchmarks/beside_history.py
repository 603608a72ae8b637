"""Databases with histories of different lengths, in one Postgres of its own: what the nightly flows work beside.

fsync on, row-level security on. The history is finished jobs of yesterday, spread over 100 tenants; their ids
follow time, as real ones do.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import psycopg
from tests.support.history import DAY, add_jobs

from durable_jobs.embedded import PostgresCluster
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision

SIZES = (10_000, 1_000_000)
TENANTS = tuple(f"t{number:03}" for number in range(100))
PART = 200_000
APART = timedelta(milliseconds=10)


class Beside(NamedTuple):
    """A database with a history."""

    history: int
    application: str
    """The URL of the application's role."""
    owner: psycopg.Connection


def histories(sizes: Sequence[int]) -> Iterator[Beside]:
    """Make a database for each length of history; the one before is left alone."""
    with tempfile.TemporaryDirectory(prefix="durable-jobs-bench-") as folder:
        Path(folder).chmod(0o711)
        settings = {"shared_buffers": "256MB", "max_wal_size": "4GB"}
        cluster = PostgresCluster(Path(folder) / "home", settings=settings)
        cluster.start()
        try:
            for history in sizes:
                name = f"beside_{history}"
                cluster.create_database(name)
                admin = cluster.admin_url(name)
                migrate(admin)
                with psycopg.connect(admin, autocommit=True) as owner:
                    _fill(owner, history)
                    yield Beside(history, provision(admin, secrets.token_urlsafe(16)), owner)
        finally:
            cluster.remove()


def settle(owner: psycopg.Connection) -> None:
    """Bring statistics and disk up to date before a measurement."""
    owner.execute("VACUUM ANALYZE")
    owner.execute("CHECKPOINT")


def _fill(owner: psycopg.Connection, history: int) -> None:
    each = history // len(TENANTS)
    for tenant in TENANTS:
        for begun in range(0, each, PART):
            add_jobs(owner, min(PART, each - begun), DAY + APART * begun, tenant=tenant, apart=APART)
