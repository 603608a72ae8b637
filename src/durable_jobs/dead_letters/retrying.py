"""Retries dead letters, tenant by tenant: a bounded number each, within the bounds of the queues.

Every letter that is looked at leaves the head of the line: it is retried, or given up, or, when it cannot
be executed any more, marked as not retryable with the reason. One tenant's fault stops nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog

from durable_jobs import payloads
from durable_jobs.dead_letters.store import EVERY, LetterFilter, LetterStore, LockedLetter, Retried, Verdict
from durable_jobs.errors import DurableJobsError
from durable_jobs.registry import Registry
from durable_jobs.texts import clean, reason_of

logger = structlog.get_logger(__name__)

PER_TENANT = 50
"""Retries in one pass for each tenant, so that after an outage thousands come back gradually."""
BATCH = 50
EACH = 20
"""Up to so many jobs that end alike have an event each; more share one."""
TOLD_EACH_IN_A_PASS = 100
ABANDONED_AT_ONCE = 10_000
LONGEST_DELAY = timedelta(days=1)


@dataclass
class TenantRetries:
    """What a pass did for one tenant."""

    tenant: str
    retried: list[Retried] = field(default_factory=list)
    refused: list[Retried] = field(default_factory=list)
    abandoned: Counter[str] = field(default_factory=Counter)
    """By job type."""
    full: set[str] = field(default_factory=set)
    """Queues without room; their letters wait for the next pass."""
    fault: str | None = None
    """What went wrong, if so."""

    @property
    def did_something(self) -> bool:
        """Whether anything changed."""
        return bool(self.retried or self.refused or self.abandoned)

    def counts(self) -> dict[str, Any]:
        """Return the figures, for people and events."""
        return {
            "retried": len(self.retried),
            "abandoned": self.abandoned.total(),
            "notRetryable": len(self.refused),
            "fullQueues": sorted(self.full),
        }


@dataclass
class Aside:
    """What is left alone after a fault, until the next pass."""

    one_by_one: bool = False
    broken: set[UUID] = field(default_factory=set)


class Retrier:
    """Decides about dead letters and has the store act."""

    def __init__(self, store: LetterStore, registry: Registry, *, by: str | None = None) -> None:
        """Use an open store; `by` is who asked."""
        self._store, self._registry, self._by = store, registry, by
        self._bounds = {queue.name: queue.max_pending for queue in registry.queues.values()}
        self._told = 0

    async def retry_tenant(
        self,
        tenant: str,
        *,
        limit: int = PER_TENANT,
        wanted: LetterFilter = EVERY,
        now: datetime | None = None,
    ) -> TenantRetries:
        """Abandon what is at its limit, then retry at most `limit` of the rest, oldest first.

        Raises:
            StoreUnavailable: the database does not answer. Any other fault is in the answer.
        """
        done = TenantRetries(tenant)
        aside = Aside()
        try:
            await self._abandon(done, wanted, now)
        except DurableJobsError:
            raise
        except Exception as error:  # noqa: BLE001 -- one tenant's fault must not stop the others
            self._fault(done, error)
            return done
        while (left := limit - len(done.retried)) > 0 and await self._retry_some(
            done, 1 if aside.one_by_one else min(left, BATCH), wanted, aside, now
        ):
            pass
        return done

    async def _abandon(self, done: TenantRetries, wanted: LetterFilter, now: datetime | None) -> None:
        while abandoned := await self._store.abandon_failed(
            done.tenant, wanted=wanted, limit=ABANDONED_AT_ONCE, by=self._by, each=self._each(), now=now
        ):
            done.abandoned.update(abandoned)
            self._told += min(sum(abandoned.values()), EACH)

    async def _retry_some(
        self, done: TenantRetries, limit: int, wanted: LetterFilter, aside: Aside, now: datetime | None
    ) -> bool:
        """Retry one batch; False when nothing is left."""
        seen: list[UUID] = []

        def decide(letter: LockedLetter) -> Verdict:
            seen.append(letter.job_id)
            return self.decide(letter)

        try:
            acted = await self._store.retry_failed(
                done.tenant,
                decide,
                self._bounds,
                wanted=wanted,
                full=done.full,
                skip=aside.broken,
                limit=limit,
                by=self._by,
                each=self._each(),
                now=now,
            )
        except DurableJobsError:
            raise
        except Exception as error:  # noqa: BLE001 -- a row that cannot be written must not hold up the others
            self._fault(done, error)
            # The batch is undone: its jobs are tried one by one, and the broken one goes aside.
            if len(seen) == 1:
                aside.broken.update(seen)
            aside.one_by_one = True
            return bool(seen)
        self._note(done, acted)
        return bool(seen)

    def _note(self, done: TenantRetries, acted: Iterable[Retried]) -> None:
        for one in acted:
            if one.outcome == "full":
                done.full.add(one.letter.queue)
                continue
            (done.retried if one.outcome == "retried" else done.refused).append(one)
            self._told += 1

    def _fault(self, done: TenantRetries, error: Exception) -> None:
        done.fault = clean(reason_of(error), 500)
        logger.error("dead letters not retried", tenant=done.tenant, error=done.fault)

    def _each(self) -> int:
        return EACH if self._told < TOLD_EACH_IN_A_PASS else 0

    def decide(self, letter: LockedLetter) -> Verdict:
        """Say what becomes of one letter: a retry, unless it could never be executed."""
        declared = self._registry.job_types.get(letter.job_type)
        if declared is None:
            return Verdict(refuse=f"job type {letter.job_type!r} is not declared any more")
        if letter.queue not in self._registry.queues:
            return Verdict(refuse=f"queue {letter.queue!r} is not declared any more")
        try:
            request = payloads.load(declared, letter.payload, letter.payload_version)
        except Exception as error:  # noqa: BLE001 -- a model's validators are code of the user
            return Verdict(refuse=reason_of(error))
        backoff = declared.backoff_of(request)
        if backoff is None:
            return Verdict()
        doubled = min(backoff, LONGEST_DELAY) * 2 ** min(letter.retry_count, 20)
        return Verdict(delay=min(doubled, LONGEST_DELAY))


def counts_of(tenants: Iterable[TenantRetries]) -> dict[str, Any]:
    """Return the figures of a pass over all tenants, for people and events."""
    done = list(tenants)
    by_type: Counter[str] = Counter()
    for one in done:
        by_type.update(one.abandoned)
    return {
        "retried": sum(len(one.retried) for one in done),
        "abandoned": by_type.total(),
        "notRetryable": sum(len(one.refused) for one in done),
        "tenants": sum(one.did_something for one in done),
        "tenantsWithFaults": sum(one.fault is not None for one in done),
        "fullQueues": sorted(set().union(*(one.full for one in done)))[:100],
        "abandonedTypes": dict(by_type.most_common(100)),
    }
