"""The fixtures of shifts in processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from durable_jobs.stores.postgres import PgJobsStore
from tests.integration.executor.shifts import Duty


@pytest.fixture
async def duty(
    pg_store: PgJobsStore,
    database_url: str,
    owner_connection: psycopg.Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Duty]:
    """An empty database with the table of traces, and processes that end with the test."""
    owner_connection.execute(
        "CREATE TABLE IF NOT EXISTS traces (job_id uuid, what text, pid integer, at timestamptz DEFAULT now())"
    )
    owner_connection.execute("TRUNCATE traces")
    owner_connection.execute("GRANT INSERT ON traces TO PUBLIC")
    # Job types leave their traces on connections of their own, also in this process.
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", database_url)
    duty = Duty(pg_store, database_url, owner_connection, tmp_path)
    yield duty
    duty.close()
    owner_connection.execute("DROP TABLE traces")
