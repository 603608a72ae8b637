"""The heartbeat's own connection: synchronous, so that a thread needs no event loop."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from durable_jobs.errors import StoreUnavailable
from durable_jobs.stores.postgres.bound import hung_up_after
from durable_jobs.stores.postgres.database import translate
from durable_jobs.stores.postgres.duty import BEAT

_IN_ORDER = "SELECT claim_token FROM held_jobs(%(executor)s) WHERE NOT (cancel_requested OR overdue)"


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
        return bool(self._rows(BEAT))

    def must_stop(self, running: Collection[UUID]) -> bool:
        """Look for an execution that should have ended; see `Heart.must_stop`."""
        return not {row[0] for row in self._rows(_IN_ORDER)}.issuperset(running)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(**self._options)
            # One round trip: a slow database must not make a beat late.
            with hung_up_after(self._timeout, self._connection):
                return self._connection.execute(statement, {"executor": self._executor_id}).fetchall()
        except psycopg.Error as error:
            self.close()
            raise StoreUnavailable(str(translate(error))) from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
