"""What the health checks said last, and the events that follow, changed together in one transaction.

Two looks at the same target at once (a schedule and a person, say) wait for each other, so no change is
said twice and none is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Self

from psycopg import AsyncConnection
from psycopg.rows import dict_row

from durable_jobs.redis_health.results import CheckName, Severity
from durable_jobs.redis_health.watch import CheckState, Step
from durable_jobs.settings import Settings
from durable_jobs.sql import load
from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.postgres.statements import RECORD_EVENTS, event_params
from durable_jobs.stores.protocols import NewEvent

Decide = Callable[[Mapping[CheckName, CheckState], datetime], Step]


class PgHealthStates:
    """The memory of the health checks in Postgres; use it as an async context manager."""

    def __init__(self, database: Database) -> None:
        """Use a database that the caller opens."""
        self._db = database

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the memory in the settings' database.

        Raises:
            InvalidSettings: no database URL is set.
        """
        return cls(
            Database(
                settings.require_database_url(),
                timeout=settings.database_timeout,
                pool_size=1,
                prepared_statements=settings.prepared_statements,
            )
        )

    async def __aenter__(self) -> Self:
        await self._db.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._db.close()

    async def settle(
        self, target: str, decide: Decide, *, now: datetime | None = None
    ) -> tuple[NewEvent, ...]:
        """Let `decide` compare with what is remembered of a target; keep the new states, record the events.

        Raises:
            StoreUnavailable: the database does not answer; nothing was changed.
        """

        async def work(connection: AsyncConnection[Any]) -> tuple[NewEvent, ...]:
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('health:' || %s, 0))", [target]
            )
            async with connection.cursor(row_factory=dict_row) as cursor:
                # Not now(): the transaction may have waited for another look, which is earlier.
                await cursor.execute("SELECT coalesce(%s, clock_timestamp()) AS now", [now])
                moment = (await cursor.fetchone() or {})["now"]
                await cursor.execute("SELECT * FROM health_states WHERE target = %s", [target])
                step = decide(
                    {CheckName(row["check_name"]): _read(row) for row in await cursor.fetchall()}, moment
                )
                await cursor.executemany(
                    load("keep_health_state"), [_row(target, state) for state in step.states]
                )
            if step.events:
                await connection.execute(RECORD_EVENTS, event_params(step.events))
            return step.events

        return await self._db.in_transaction(work)


def _read(row: Mapping[str, Any]) -> CheckState:
    return CheckState(
        check=CheckName(row["check_name"]),
        failing=row["failing"],
        announced=row["announced"],
        since=row["since"],
        said_at=row["said_at"],
        severity=Severity(row["severity"]) if row["severity"] else None,
        changes=row["changes"],
    )


def _row(target: str, state: CheckState) -> dict[str, Any]:
    return {
        "target": target,
        "check_name": state.check.value,
        "failing": state.failing,
        "announced": state.announced,
        "since": state.since,
        "said_at": state.said_at,
        "severity": state.severity.value if state.severity else None,
        "changes": state.changes,
    }
