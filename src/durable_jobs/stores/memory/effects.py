"""Effects in memory; see `PgEffects` for the same in Postgres."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from durable_jobs.effects.store import OVER, Answer, BegunEffect, EffectState, EffectView, WantedEffect
from durable_jobs.errors import EffectNotFound
from durable_jobs.jobs import ClaimedJob
from durable_jobs.stores.memory.rows import EffectRow, Memory, Row, time_of
from durable_jobs.stores.settled_effects import require_settled
from durable_jobs.tenants import required_tenant


class MemoryEffects:
    """Effects of executions, and what people say of them."""

    memory: Memory

    async def begin_effect(
        self,
        job: ClaimedJob,
        wanted: WantedEffect,
        *,
        patience: timedelta,  # noqa: ARG002 -- there are no transactions to wait for
        now: datetime | None = None,
    ) -> BegunEffect:
        """Check the fence and reserve the effect for this execution."""
        at = time_of(now)
        row = self.memory.fenced(job.job_id, job.claim_token)
        if row is None or (over := _fence(row, at)) in OVER:
            answer = Answer.LOST if row is None else over
            return BegunEffect(answer, None, wanted.key, None, job.job_id, at)
        root = _first_root(row)
        key = wanted.key or str(root)
        place = (job.tenant_id, key, wanted.effect_type)
        known = self.memory.effects.get(place)
        if known is None:
            known = EffectRow(
                uuid4(),
                *place,
                job.job_id,
                root,
                EffectState.RESERVED,
                wanted.reservation,
                at,
                job.claim_token,
            )
            self.memory.effects[place] = known
        elif known.reservation == wanted.over and known.state is not EffectState.CONFIRMED:
            known.state, known.claim_token = EffectState.RESERVED, job.claim_token
            known.job_id, known.root_job_id = job.job_id, root
            known.reservation = wanted.reservation
        return BegunEffect(
            self._answer(known, wanted, job),
            known.id,
            key,
            known.reservation,
            known.job_id,
            known.created_at,
            known.result,
        )

    def _answer(self, known: EffectRow, wanted: WantedEffect, job: ClaimedJob) -> Answer:
        if known.state is EffectState.CONFIRMED:
            return Answer.DONE
        if known.state is EffectState.RESERVED and known.reservation == wanted.reservation:
            return Answer.TAKEN
        return Answer.HELD if self._is_held(known, besides=job.claim_token) else Answer.UNKNOWN

    def _is_held(self, effect: EffectRow, besides: UUID | None = None) -> bool:
        token = effect.claim_token
        if effect.state is not EffectState.RESERVED or token is None or token == besides:
            return False
        return self.memory.fenced(effect.job_id, token) is not None

    async def confirm_effect(
        self, job: ClaimedJob, effect: WantedEffect, result: str | None, *, now: datetime | None = None
    ) -> bool:
        """Record that it was made; False when another execution may have made it as well."""
        at, place = time_of(now), (job.tenant_id, effect.key or "", effect.effect_type)
        known = self.memory.effects.get(place)
        value = None if result is None else json.loads(result)
        if known is not None and known.reservation == effect.reservation:
            self._confirm(known, value, at)
            return True
        other = None if known is None else (str(known.job_id), str(known.state))
        row = self.memory.jobs.get(job.job_id)
        if known is None:
            known = EffectRow(
                uuid4(), *place, job.job_id, job.job_id, EffectState.CONFIRMED, effect.reservation, at
            )
            self.memory.effects[place] = known
        known.job_id, known.root_job_id = job.job_id, job.job_id if row is None else _first_root(row)
        known.claim_token, known.reservation = None, effect.reservation
        self._confirm(known, value, at)
        told = {"otherJobId": other[0] if other else None, "otherState": other[1] if other else None}
        self._tell("overtaken", "WARNING", known, job.job_id, at, **told)
        return False

    def _confirm(self, known: EffectRow, value: Any, at: datetime) -> None:
        known.state = EffectState.CONFIRMED
        known.confirmed_at = known.confirmed_at or at
        known.result = known.result if value is None else value

    async def end_effect(
        self, job: ClaimedJob, begun: BegunEffect, *, released: bool, stopped: bool = False
    ) -> None:
        """End a reservation: released when it was not made, else unknown; `stopped` asks for a person."""
        known = self._of_id(begun.effect_id)
        if (
            known is None
            or known.reservation != begun.reservation
            or known.state is EffectState.CONFIRMED
            or (released and known.state is not EffectState.RESERVED)
        ):
            return
        if released:
            self._forget(known)
            return
        known.state = EffectState.UNKNOWN
        if stopped:
            told = {"triedBy": str(known.job_id), "since": known.created_at.isoformat()}
            self._tell("unknown", "CRITICAL", known, job.job_id, time_of(None), **told)

    async def effects(
        self, *, states: Sequence[EffectState] = (), job_id: UUID | None = None, limit: int = 50
    ) -> list[EffectView]:
        """Return effects of the scope's tenant, newest first."""
        tenant = required_tenant()
        mine = [effect for effect in self.memory.effects.values() if effect.tenant_id == tenant]
        mine.sort(key=lambda effect: (effect.created_at, effect.id), reverse=True)
        if job_id is not None:
            row = self.memory.jobs.get(job_id)
            roots = {job_id} if row is None else {job_id, _first_root(row)}
            mine = [effect for effect in mine if effect.job_id == job_id or effect.root_job_id in roots]
        views = [self._view(effect) for effect in mine]
        return [view for view in views if not states or view.state in states][:limit]

    async def settle_effect(
        self, effect_id: UUID, *, happened: bool, by: str | None = None, now: datetime | None = None
    ) -> EffectView:
        """Take a person's word about an unknown effect."""
        tenant, at = required_tenant(), time_of(now)
        known = self._of_id(effect_id)
        if known is None or known.tenant_id != tenant:
            raise EffectNotFound(f"no effect {effect_id} in tenant {tenant!r}")
        done, held = known.state is EffectState.CONFIRMED, self._is_held(known)
        require_settled("done" if done else "held" if held else "", known.id, known.job_id, happened=happened)
        if not done:
            if happened:
                self._confirm(known, None, at)
            else:
                self._forget(known)
            self._tell("settled", "INFO", known, known.job_id, at, happened=happened, by=by)
        return self._view(known)

    def _of_id(self, effect_id: UUID | None) -> EffectRow | None:
        return next((effect for effect in self.memory.effects.values() if effect.id == effect_id), None)

    def _forget(self, effect: EffectRow) -> None:
        del self.memory.effects[effect.tenant_id, effect.key, effect.effect_type]

    def _tell(
        self, event: str, severity: str, effect: EffectRow, job_id: UUID, at: datetime, **more: Any
    ) -> None:
        payload = {"effectType": effect.effect_type, "effectId": str(effect.id)} | more
        self.memory.add_event(f"jobs.effect.{event}", severity, payload, effect.tenant_id, job_id, at)

    def _view(self, effect: EffectRow) -> EffectView:
        ended = effect.state is EffectState.RESERVED and not self._is_held(effect)
        return EffectView(
            effect.id,
            effect.key,
            effect.effect_type,
            EffectState.UNKNOWN if ended else effect.state,
            effect.job_id,
            effect.root_job_id,
            effect.created_at,
            effect.confirmed_at,
            effect.result,
        )


def _first_root(row: Row) -> UUID:
    return row.origin_job_id or row.root_job_id


def _fence(row: Row, at: datetime) -> Answer:
    if row.cancel_requested_at is not None:
        return Answer.CANCELLED
    return Answer.OVERDUE if row.claimed().deadline_at < at else Answer.TAKEN
