"""Postgres stores for tests and for the processes they start."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.database import Database


def open_store(url: str, **changes: Any) -> PgJobsStore:
    """Return a store that is still to be opened."""
    options = {
        "timeout": timedelta(seconds=10),
        "pool_size": 5,
        "prepared_statements": os.environ.get("DURABLE_JOBS_PREPARED_STATEMENTS", "true") != "false",
    }
    return PgJobsStore(Database(url, **(options | changes)))
