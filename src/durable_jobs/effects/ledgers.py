"""Where an effect is recorded: in transactions of its own around a call, or in the caller's transaction.

Invariant: the record of a call to the outside is committed before the call and settled after it; in the
caller's transaction there is no moment between effect and record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import structlog

from durable_jobs.effects.bridge import Bridge
from durable_jobs.effects.effect import Effect
from durable_jobs.effects.errors import ExecutionOver
from durable_jobs.effects.store import OVER, Answer, BegunEffect, EffectsStore, WantedEffect
from durable_jobs.errors import StoreUnavailable
from durable_jobs.jobs import ClaimedJob
from durable_jobs.texts import result_text

T = TypeVar("T")

logger = structlog.get_logger("durable_jobs.effects")

MAX_RESULT_BYTES = 65_536
ASK_AGAIN_S = 0.1
LONGEST_PAUSE_S = 5.0
BEGIN_TRIES = 8
"""How often a reservation is asked for while the store is away: about 16 s."""
SHORT = timedelta(milliseconds=200)
"""How long one question waits for a transaction that records the same effect."""


class Ledger(Protocol):
    """Records one effect."""

    async def begin(self, wanted: WantedEffect) -> BegunEffect:
        """Check the fence and take the effect's key."""
        ...

    async def made(self, begun: BegunEffect, effect: Effect) -> None:
        """Record that the block has made it."""
        ...

    async def not_made(self, begun: BegunEffect, error: BaseException, *, released: bool) -> None:
        """Record that the block ended with an error."""
        ...

    async def leave(self, error: BaseException | None) -> None:
        """End without having taken it."""
        ...


class OwnLedger:
    """Around a call to the outside: reserved, then confirmed, released or unknown."""

    def __init__(
        self, store: EffectsStore, job: ClaimedJob, bridge: Bridge, stopped: Callable[[], bool]
    ) -> None:
        """`stopped` tells that the execution is to end, so nothing is waited for any more."""
        self._store, self._job, self._bridge, self._stopped = store, job, bridge, stopped

    async def begin(self, wanted: WantedEffect) -> BegunEffect:
        """Reserve it; asking again under the same reservation is harmless."""
        return await self._patiently(
            lambda: self._store.begin_effect(self._job, wanted, patience=SHORT), tries=BEGIN_TRIES
        )

    async def made(self, begun: BegunEffect, effect: Effect) -> None:
        """Confirm it; while the store is away this is tried until the execution is to end."""
        if not await self.confirm(begun, effect):
            logger.warning(
                "another execution may have made this effect as well",
                job_id=str(self._job.job_id), effect_type=effect.effect_type,
            )  # fmt: skip

    async def confirm(self, begun: BegunEffect, effect: Effect) -> bool:
        """Record that it exists, whoever made it; False when it was overtaken."""
        if begun.reservation is None or begun.job_id is None:
            raise ValueError(f"effect {effect!r} was never begun")
        known = WantedEffect(effect.key, effect.effect_type, begun.reservation)
        made_by = self._job._replace(job_id=begun.job_id)
        result = stored_result(effect.result)
        return await self._patiently(lambda: self._store.confirm_effect(made_by, known, result))

    async def not_made(self, begun: BegunEffect, error: BaseException, *, released: bool) -> None:
        """Say so once; without an answer the next attempt finds it unknown."""
        if not isinstance(error, Exception):
            # Cancelled or shut down: leave at once.
            return
        try:
            await self._bridge.on_loop(self._store.end_effect(self._job, begun, released=released))
        except StoreUnavailable as away:
            logger.warning("an effect is left unknown", job_id=str(self._job.job_id), error=str(away))

    async def stop(self, begun: BegunEffect) -> None:
        """Ask for a person."""
        await self._patiently(
            lambda: self._store.end_effect(self._job, begun, released=False, stopped=True), tries=BEGIN_TRIES
        )

    async def leave(self, error: BaseException | None) -> None:
        """Nothing is open."""

    async def _patiently(self, call: Callable[[], Coroutine[Any, Any, T]], *, tries: int | None = None) -> T:
        pause, tried = ASK_AGAIN_S, 0
        while True:
            try:
                return await self._bridge.on_loop(call())
            except StoreUnavailable as away:
                tried += 1
                if tried == tries or self._stopped():
                    raise
                logger.warning("an effect waits for the store", job_id=str(self._job.job_id), error=str(away))
            await self._bridge.pause(pause)
            pause = min(pause * 2, LONGEST_PAUSE_S)


class CallersLedger:
    """In the caller's transaction: recorded with the effect, or neither is there."""

    def __init__(self, connection: Any, bridge: Bridge, job: ClaimedJob) -> None:
        """Take the connection.

        Raises:
            BadInput: it is none that we know.
        """
        from durable_jobs.stores.postgres.effects_within import CallersConnection  # drivers load slowly

        self._connection = CallersConnection(connection, wants_async=bridge.is_async)
        self._is_open = False
        self._job = job

    async def begin(self, wanted: WantedEffect) -> BegunEffect:
        """Record it in the open transaction; another one that records it too is waited for."""
        if not self._is_open:
            await self._connection.open(str(wanted.reservation))
            self._is_open = True
        from durable_jobs.stores.postgres.effects import BEGIN, begin_params, read_begun

        params = begin_params(self._job, wanted, recorded=True, patience=SHORT)
        row = await self._connection.row(BEGIN, params)
        return read_begun(row, None if row[6] is None else json.loads(row[6]))

    async def made(self, begun: BegunEffect, effect: Effect) -> None:
        """Check the fence once more; from here it holds until the caller's transaction ends.

        Raises:
            ExecutionOver: the job was given up meanwhile; the effect is undone.
        """
        from durable_jobs.stores.postgres.effects import KEEP

        job = self._job
        params = {
            "tenant": job.tenant_id,
            "job_id": job.job_id,
            "token": job.claim_token,
            "reservation": begun.reservation,
            "id": begun.effect_id,
            "result": stored_result(effect.result),
        }
        answer = (await self._connection.row(KEEP, params))[0]
        if answer in OVER:
            over = ExecutionOver(Answer(answer), effect.effect_type)
            await self._connection.close(over)
            raise over
        await self._connection.close(None)

    async def not_made(self, begun: BegunEffect, error: BaseException, *, released: bool) -> None:  # noqa: ARG002 -- the record is undone either way
        """Undo the effect together with its record."""
        await self._connection.close(error)

    async def leave(self, error: BaseException | None) -> None:
        """Give the savepoint up."""
        await self._connection.close(error)


def stored_result(value: Any) -> str | None:
    """Return JSON for what the block has set; never raises, because the effect was made."""
    if value is None:
        return None
    document = json.loads(result_text(value, max_bytes=MAX_RESULT_BYTES))
    if "value" not in document:
        logger.warning("the result of an effect is over the limit and not kept", limit_bytes=MAX_RESULT_BYTES)
        return None
    return json.dumps(document["value"])
