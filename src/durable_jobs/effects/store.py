"""What a store does for effects, and the words in which it answers.

Invariant: one row for each tenant, key and type. It is RESERVED while an execution is at it, CONFIRMED
once the effect exists, and UNKNOWN when an execution ended in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from durable_jobs.jobs import ClaimedJob


class EffectState(StrEnum):
    """State of an effect (`job_effects.state`)."""

    RESERVED = "RESERVED"
    CONFIRMED = "CONFIRMED"
    UNKNOWN = "UNKNOWN"


class Answer(StrEnum):
    """What an execution is told that is about to make an effect."""

    TAKEN = "taken"
    """It is this execution's: go on."""
    DONE = "done"
    """It exists."""
    HELD = "held"
    """Another execution is at it."""
    UNKNOWN = "unknown"
    """Another execution ended in between: it may exist or not."""
    LOST = "lost"
    """The job was given up: this execution is over."""
    CANCELLED = "cancelled"
    """The job is to be cancelled: this execution is over."""
    OVERDUE = "overdue"
    """The job's deadline has passed: this execution is over."""


OVER = frozenset({Answer.LOST, Answer.CANCELLED, Answer.OVERDUE})


class WantedEffect(NamedTuple):
    """An effect that an execution is about to make."""

    key: str | None
    """Names it among the effects of its type; None for the first job that all attempts come from."""
    effect_type: str
    reservation: UUID
    """Names this attempt; asking again under the same one is harmless."""
    over: UUID | None = None
    """Reservation of an attempt with an unknown end, to take it over."""


class BegunEffect(NamedTuple):
    """The answer to a wanted effect, and the effect as it stands."""

    answer: Answer
    effect_id: UUID | None
    key: str | None
    reservation: UUID | None
    job_id: UUID | None
    """The job that made it, or tried last; None while its transaction is open."""
    created_at: datetime
    result: Any = None


class EffectView(NamedTuple):
    """An effect as people see it: UNKNOWN as well when its execution ended without a word."""

    effect_id: UUID
    key: str
    effect_type: str
    state: EffectState
    job_id: UUID
    root_job_id: UUID
    """The first job that the one which made it comes from, through retries and resubmissions."""
    created_at: datetime
    confirmed_at: datetime | None
    result: Any


@runtime_checkable
class EffectsStore(Protocol):
    """Where effects are known; `job` is the execution that makes one."""

    async def begin_effect(
        self, job: ClaimedJob, wanted: WantedEffect, *, patience: timedelta, now: datetime | None = None
    ) -> BegunEffect:
        """Check the fence and reserve the effect for this execution.

        `patience` bounds the wait for a transaction that records the same effect; then it is HELD.
        """
        ...

    async def confirm_effect(
        self, job: ClaimedJob, effect: WantedEffect, result: str | None, *, now: datetime | None = None
    ) -> bool:
        """Record that it was made; False when another execution may have made it as well."""
        ...

    async def end_effect(
        self, job: ClaimedJob, begun: BegunEffect, *, released: bool, stopped: bool = False
    ) -> None:
        """End a reservation: released when it was not made, else unknown; `stopped` asks for a person."""
        ...

    async def effects(
        self, *, states: Sequence[EffectState] = (), job_id: UUID | None = None, limit: int = 50
    ) -> list[EffectView]:
        """Return effects of the scope's tenant, newest first; with a job those of its chain and what it repeats."""
        ...

    async def settle_effect(
        self, effect_id: UUID, *, happened: bool, by: str | None = None, now: datetime | None = None
    ) -> EffectView:
        """Take a person's word about an unknown effect; one that did not happen is forgotten.

        Raises:
            EffectNotFound: there is none in this tenant.
            NotAllowed: an execution is at it, or it is confirmed and is said not to have happened.
        """
        ...
