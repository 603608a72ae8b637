"""`context.effect(...)`: the block around an effect, for `async with` and for `with` in a thread.

Invariant: the block is entered only while the job is this execution's, and its effect is reserved for it,
recorded with it, or known to exist already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from durable_jobs.effects.bridge import Bridge, LoopBridge, ThreadBridge, drive
from durable_jobs.effects.effect import Effect
from durable_jobs.effects.errors import (
    EffectHeld,
    EffectNotChecked,
    EffectNotMade,
    EffectUnknown,
    ExecutionOver,
)
from durable_jobs.effects.ledgers import CallersLedger, Ledger, OwnLedger
from durable_jobs.effects.policy import Policy
from durable_jobs.effects.store import OVER, Answer, BegunEffect, EffectsStore, WantedEffect
from durable_jobs.errors import BadInput
from durable_jobs.jobs import ClaimedJob

FIRST_LOOK_S = 0.05
LONGEST_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Execution:
    """The execution that makes effects, and where they are known."""

    job: ClaimedJob
    store: EffectsStore
    loop: asyncio.AbstractEventLoop
    stopped: Callable[[], bool]
    open: set[UUID] = field(default_factory=set)
    """Reservations whose blocks are running here."""


class EffectBlock:
    """One block; enter it once, with `async with` or, in a thread, with `with`."""

    def __init__(
        self, execution: Execution, key: str | None, effect_type: str, policy: Policy, connection: Any
    ) -> None:
        """Made by `context.effect`."""
        self._execution = execution
        self._key, self._type = key, effect_type
        self._policy = policy
        self._connection = connection
        self._reservation = uuid4()
        self._in_doubt = False
        self._entered = False
        self._bridge: Bridge
        self._own: OwnLedger
        self._ledger: Ledger
        self._begun: BegunEffect
        self._effect: Effect

    async def __aenter__(self) -> Effect:
        self._bridge = LoopBridge(self._execution.loop)
        return await self._enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave(error)

    def __enter__(self) -> Effect:
        self._bridge = ThreadBridge(self._execution.loop)
        return drive(self._enter())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        drive(self._leave(error))

    async def _enter(self) -> Effect:
        if self._entered:
            raise BadInput(
                f"the block of effect {self._type} is entered again: call context.effect(...) anew"
            )
        self._entered = True
        job, store = self._execution.job, self._execution.store
        self._own = OwnLedger(store, job, self._bridge, self._execution.stopped)
        self._ledger = self._own
        if self._connection is not None:
            self._ledger = CallersLedger(self._connection, self._bridge, job)
        self._execution.open.add(self._reservation)
        try:
            self._effect = await self._begin()
        except BaseException as error:
            self._execution.open.discard(self._reservation)
            await self._ledger.leave(error)
            raise
        return self._effect

    async def _begin(self) -> Effect:
        deadline = time.monotonic() + self._policy.wait.total_seconds()
        pause, over = FIRST_LOOK_S, None
        while True:
            begun = await self._ledger.begin(WantedEffect(self._key, self._type, self._reservation, over))
            if begun.answer in OVER:
                raise ExecutionOver(begun.answer, self._type)
            if begun.answer is not Answer.HELD:
                effect = Effect(self._execution.job.tenant_id, begun.key or "", self._type)
                if await self._decided(begun, effect):
                    self._begun = begun
                    return effect
                over = begun.reservation
                continue
            if time.monotonic() >= deadline:
                by = f"job {begun.job_id}" if begun.job_id else "a transaction of another job"
                raise EffectHeld(
                    f"effect {self._type} is being made by {by}, which did not end within"
                    f" {self._policy.wait.total_seconds():g} s; retry this job to find out"
                )
            over = None
            await self._bridge.pause(pause)
            pause = min(pause * 2, LONGEST_LOOK_S)

    async def _decided(self, begun: BegunEffect, effect: Effect) -> bool:
        """Tell whether the block may be entered; False means to take an unknown effect over first."""
        if begun.answer is Answer.TAKEN:
            return True
        if begun.answer is Answer.DONE:
            effect.found(begun.job_id, begun.result)
            return True
        if begun.reservation in self._execution.open:
            raise BadInput(
                f"effect {self._type} of key {begun.key!r} is already open in this job: give each its own key"
            )
        happened = None
        if self._policy.probe is not None:
            happened = await self._bridge.ask(self._policy.probe, effect)
        if happened:
            await self._own.confirm(begun, effect)
            effect.found(begun.job_id, effect.result)
            return True
        self._in_doubt = happened is None
        if self._in_doubt and self._policy.on_unknown == "stop":
            await self._own.stop(begun)
            raise EffectUnknown(_for_a_person(begun, self._type))
        return False

    async def _leave(self, error: BaseException | None) -> None:
        effect = self._effect
        try:
            if effect.is_found:
                await self._ledger.leave(error)
            elif error is None:
                await self._ledger.made(self._begun, effect)
            else:
                proved = isinstance(error, (EffectNotMade, *self._policy.releases))
                # An attempt before this one may have made it: that stays unknown.
                await self._ledger.not_made(self._begun, error, released=proved and not self._in_doubt)
        finally:
            self._execution.open.discard(self._reservation)
        if error is None and not effect.asked:
            raise EffectNotChecked(
                f"the block of effect {self._type} did not look at `effect.already_done`: a retry would make the"
                " effect again; make it only when that is False"
            )


def _for_a_person(begun: BegunEffect, effect_type: str) -> str:
    return (
        f"effect {effect_type} may have happened: job {begun.job_id} began it at"
        f" {begun.created_at.isoformat(timespec='seconds')} and ended without a word. Look at the provider, then say"
        f" `durable-jobs effects confirm {begun.effect_id}` (it happened) or"
        f" `durable-jobs effects release {begun.effect_id}` (it did not), and resubmit this job"
    )
