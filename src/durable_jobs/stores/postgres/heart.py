"""The heartbeat's own connection: synchronous, so that a thread needs no event loop."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import psycopg

from durable_jobs.errors import StoreUnavailable
from durable_jobs.stores.postgres.bound import hung_up_after
from durable_jobs.stores.postgres.database import translate
from durable_jobs.stores.postgres.duty import BEAT

_IN_ORDER = "SELECT count(*) FROM held_jobs(%(executor)s) WHERE NOT (cancel_requested OR overdue)"


class PgHeart:
    """Beats for one executor, reconnecting as needed."""

    def __init__(self, executor_id: UUID, options: dict[str, Any], timeout: timedelta) -> None:
        """Connect at the first beat."""
        self._executor_id = executor_id
        self._options = options
        self._timeout = timeout
        self._connection: psycopg.Connection[Any] | None = None

    def beat(self) -> bool:
        """Beat once; see `Heart.beat`."""
        return self._row(BEAT) is not None

    def must_stop(self, running: int) -> bool:
        """Look for an execution that should have ended; see `Heart.must_stop`."""
        row = self._row(_IN_ORDER)
        return row is not None and row[0] < running

    def _row(self, statement: str) -> tuple[Any, ...] | None:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(**self._options)
            with hung_up_after(self._timeout, self._connection), self._connection.transaction():
                self._connection.execute(
                    "SELECT set_config('statement_timeout', %s, true)",
                    [str(int(self._timeout.total_seconds() * 1000))],
                )
                cursor = self._connection.execute(statement, {"executor": self._executor_id})
                return cast("tuple[Any, ...] | None", cursor.fetchone())
        except psycopg.Error as error:
            self.close()
            raise StoreUnavailable(str(translate(error))) from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
