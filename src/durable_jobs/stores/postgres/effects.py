"""Effects in Postgres, each step in a transaction of its own; see `EffectsStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from durable_jobs.effects.store import Answer, BegunEffect, EffectState, EffectView, WantedEffect
from durable_jobs.errors import EffectNotFound
from durable_jobs.jobs import ClaimedJob
from durable_jobs.stores.postgres.database import Database
from durable_jobs.stores.settled_effects import require_settled
from durable_jobs.tenants import required_tenant
from durable_jobs.texts import clean

# CAST and plain names, so that the same text serves any driver in the caller's transaction.
BEGIN = (
    "SELECT answer, id, key, reservation, job_id, created_at, CAST(result AS text) FROM begin_effect("
    "CAST(%(tenant)s AS text), CAST(%(job_id)s AS uuid), CAST(%(token)s AS uuid), CAST(%(key)s AS text),"
    " CAST(%(type)s AS text), CAST(%(reservation)s AS uuid), CAST(%(over)s AS uuid),"
    " CAST(%(recorded)s AS boolean), CAST(%(patience)s AS interval), CAST(%(now)s AS timestamptz))"
)
KEEP = (
    "SELECT keep_effect(CAST(%(tenant)s AS text), CAST(%(job_id)s AS uuid), CAST(%(token)s AS uuid),"
    " CAST(%(reservation)s AS uuid), CAST(%(id)s AS uuid), CAST(%(result)s AS jsonb), NULL)"
)
_CONFIRM = (
    "SELECT confirm_effect("
    "%(tenant)s, %(key)s, %(type)s, %(job_id)s, %(reservation)s, %(result)s::jsonb, %(now)s)"
)
_END = "SELECT end_effect(%(tenant)s, %(id)s, %(reservation)s, %(job_id)s, %(released)s, %(stopped)s, NULL)"
_LIST = "SELECT * FROM list_effects(%(tenant)s, %(states)s::text[], %(job_id)s, %(limit)s)"
_SETTLE = "SELECT * FROM settle_effect(%(tenant)s, %(id)s, %(happened)s, %(by)s, %(now)s)"


def begin_params(
    job: ClaimedJob, wanted: WantedEffect, *, recorded: bool, patience: timedelta, now: datetime | None = None
) -> dict[str, Any]:
    """Return the parameters of BEGIN."""
    return {
        "tenant": job.tenant_id,
        "job_id": job.job_id,
        "token": job.claim_token,
        "key": wanted.key,
        "type": wanted.effect_type,
        "reservation": wanted.reservation,
        "over": wanted.over,
        "recorded": recorded,
        "patience": patience,
        "now": now,
    }


def read_begun(row: Sequence[Any], result: Any) -> BegunEffect:
    """Return the answer from a row of BEGIN, whose result is given as a value."""
    answer, effect_id, key, reservation, job_id, created_at = row[:6]
    return BegunEffect(Answer(answer), effect_id, key, reservation, job_id, created_at, result)


class PgEffects:
    """Effects of executions, and what people say of them."""

    _db: Database

    async def begin_effect(
        self, job: ClaimedJob, wanted: WantedEffect, *, patience: timedelta, now: datetime | None = None
    ) -> BegunEffect:
        """Check the fence and reserve the effect for this execution."""
        params = begin_params(job, wanted, recorded=False, patience=patience, now=now)
        [row] = await self._db.fetch(BEGIN.replace("CAST(result AS text)", "result"), params)
        return read_begun(row, row[6])

    async def confirm_effect(
        self, job: ClaimedJob, effect: WantedEffect, result: str | None, *, now: datetime | None = None
    ) -> bool:
        """Record that it was made; False when another execution may have made it as well."""
        [row] = await self._db.fetch(
            _CONFIRM,
            {
                "tenant": job.tenant_id,
                "key": effect.key,
                "type": effect.effect_type,
                "job_id": job.job_id,
                "reservation": effect.reservation,
                "result": result,
                "now": now,
            },
        )
        return bool(row[0])

    async def end_effect(
        self, job: ClaimedJob, begun: BegunEffect, *, released: bool, stopped: bool = False
    ) -> None:
        """End a reservation: released when it was not made, else unknown; `stopped` asks for a person."""
        await self._db.fetch(
            _END,
            {
                "tenant": job.tenant_id,
                "id": begun.effect_id,
                "reservation": begun.reservation,
                "job_id": job.job_id,
                "released": released,
                "stopped": stopped,
            },
        )

    async def effects(
        self, *, states: Sequence[EffectState] = (), job_id: UUID | None = None, limit: int = 50
    ) -> list[EffectView]:
        """Return effects of the scope's tenant, newest first."""
        params = {
            "tenant": required_tenant(),
            "states": [str(state) for state in states] or None,
            "job_id": job_id,
            "limit": limit,
        }
        rows: list[dict[str, Any]] = await self._db.fetch(_LIST, params, row_factory=dict_row)
        return [_view(row) for row in rows]

    async def settle_effect(
        self, effect_id: UUID, *, happened: bool, by: str | None = None, now: datetime | None = None
    ) -> EffectView:
        """Take a person's word about an unknown effect."""
        tenant = required_tenant()
        said_by = None if by is None else clean(by, 255)
        params = {"tenant": tenant, "id": effect_id, "happened": happened, "by": said_by, "now": now}
        rows: list[dict[str, Any]] = await self._db.fetch(_SETTLE, params, row_factory=dict_row)
        if not rows:
            raise EffectNotFound(f"no effect {effect_id} in tenant {tenant!r}")
        require_settled(rows[0]["answer"], effect_id, rows[0]["job_id"], happened=happened)
        return _view(rows[0])


def _view(row: Mapping[str, Any]) -> EffectView:
    return EffectView(
        row["id"],
        row["key"],
        row["effect_type"],
        EffectState(row["state"]),
        row["job_id"],
        row["root_job_id"],
        row["created_at"],
        row["confirmed_at"],
        row["result"],
    )
