"""Looks behind a store: every row of every tenant, whatever row-level security says."""

from __future__ import annotations

from typing import Any, Protocol

import psycopg
from psycopg.rows import dict_row

from durable_jobs.stores.memory import InMemoryJobsStore

Row = dict[str, Any]


class Probe(Protocol):
    """What a test may look at."""

    def jobs(self) -> list[Row]:
        """Return all rows of job_history, oldest first."""
        ...

    def events(self) -> list[Row]:
        """Return all rows of job_events, oldest first."""
        ...

    def effects(self) -> list[Row]:
        """Return all rows of job_effects, oldest first."""
        ...

    def counted(self, queue: str) -> int:
        """Return how many waiting jobs the queue's counters know."""
        ...


class PgProbe:
    """Reads as the owner, a superuser."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def jobs(self) -> list[Row]:
        return self._rows("SELECT * FROM job_history ORDER BY created_at, job_id")

    def events(self) -> list[Row]:
        return self._rows("SELECT * FROM job_events ORDER BY occurred_at, event_id")

    def effects(self) -> list[Row]:
        return self._rows("SELECT * FROM job_effects ORDER BY created_at, id")

    def counted(self, queue: str) -> int:
        [row] = self._rows(
            "SELECT coalesce((SELECT sum(pending) FROM queue_pending WHERE queue = %(queue)s), 0)"
            " - coalesce((SELECT sum(released) FROM queue_pending_released WHERE queue = %(queue)s), 0) AS n",
            queue=queue,
        )
        return int(row["n"])

    def run(self, statement: str) -> list[Row]:
        """Run any statement as the owner."""
        with self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _rows(self, statement: str, **params: Any) -> list[Row]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(statement, params).fetchall()


class MemoryProbe:
    """Reads the dictionaries."""

    def __init__(self, store: InMemoryJobsStore) -> None:
        self._memory = store.memory

    def jobs(self) -> list[Row]:
        rows = sorted(self._memory.jobs.values(), key=lambda row: (row.created_at, row.job_id))
        return [vars(row) | {"state": str(row.state)} for row in rows]

    def events(self) -> list[Row]:
        return [dict(event) for event in self._memory.events]

    def effects(self) -> list[Row]:
        rows = sorted(self._memory.effects.values(), key=lambda row: (row.created_at, row.id))
        return [vars(row) | {"state": str(row.state)} for row in rows]

    def counted(self, queue: str) -> int:
        return self._memory.pending.get(queue, 0)
