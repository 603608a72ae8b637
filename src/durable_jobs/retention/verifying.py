"""Proves a purge: nothing due is left, and nothing that was not due has gone.

Both are counted again from the tables, not from what the purge says of itself. What ended before the first
look can only become less by the purge, with one exception: a failed job that somebody cancels ends anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from durable_jobs.errors import RetentionViolated
from durable_jobs.retention.looking import Look, TenantLook
from durable_jobs.retention.purging import Purged
from durable_jobs.stores.retention import RetentionStore

MOST_NAMED = 10
"""Tenants that a message names."""


@dataclass
class Verdict:
    """What is wrong, in sentences that name it; empty when the purge is proved."""

    left: list[str] = field(default_factory=list)
    """Something due that is still there."""
    early: list[str] = field(default_factory=list)
    """Something that went and was not due."""
    other: list[str] = field(default_factory=list)
    """What could not be done at all."""

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.left or self.early or self.other)

    @property
    def sentences(self) -> list[str]:
        """Return everything that is wrong, the worst first."""
        return [*self.early, *self.left, *self.other]

    def require_good(self) -> None:
        """Return when nothing is wrong.

        Raises:
            RetentionViolated: naming what is left and what went too early.
        """
        if not self.is_good:
            named = self.sentences[:MOST_NAMED]
            more = len(self.sentences) - len(named)
            raise RetentionViolated(
                "retention: " + "; ".join(named) + (f"; and {more} more" if more else ""),
                early=bool(self.early),
            )


async def verify(store: RetentionStore, before: Look, purged: Purged, after: Look) -> Verdict:
    """Compare a look before a purge with one after it, at the same moment of what is due.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    verdict = Verdict()
    for tenant, then in before.tenants.items():
        left = after.tenants.get(tenant, TenantLook())
        verdict.early += _too_many_effects(tenant, then, left)
        if tenant is not None:
            verdict.early += await _too_many_jobs(store, tenant, before, then, left)
    for tenant, left in after.tenants.items():
        verdict.left += _still_due(tenant, left, purged)
    if purged.youngest is not None and purged.youngest >= before.limits.jobs_before:
        verdict.early.append(
            f"a job that ended at {purged.youngest.isoformat()} went, although only what ended before"
            f" {before.limits.jobs_before.isoformat()} is due"
        )
    return verdict


async def _too_many_jobs(
    store: RetentionStore, tenant: str, before: Look, then: TenantLook, left: TenantLook
) -> list[str]:
    due = before.ages.due_buckets
    old = _lost(then, left, range(due))
    young = _lost(then, left, range(due, len(before.ages.edges)))
    if old <= then.due and young <= 0:
        return []
    moved = await store.cancelled_since(tenant, before.limits.now)
    found = []
    if young > moved:
        found.append(
            f"{_named(tenant)}: {young - moved} jobs younger than the retention have gone"
            f" (ended since {before.limits.jobs_before.isoformat()})"
        )
    if old > then.due + moved:
        found.append(
            f"{_named(tenant)}: {old} old jobs have gone and only {then.due} were due;"
            f" {then.kept_with_chain} were kept because a job of their chain was not due"
        )
    return found


def _lost(then: TenantLook, left: TenantLook, buckets: range) -> int:
    return sum(then.ages[bucket] - left.ages[bucket] for bucket in buckets)


def _too_many_effects(tenant: str | None, then: TenantLook, left: TenantLook) -> list[str]:
    young = then.effects_ages[1] - left.effects_ages[1]
    old = then.effects_ages[0] - left.effects_ages[0]
    found = []
    if young > 0:
        found.append(f"{_named(tenant)}: {young} effects younger than their retention have gone")
    if old > then.effects_due:
        found.append(f"{_named(tenant)}: {old} old effects have gone and only {then.effects_due} were due")
    return found


def _still_due(tenant: str | None, left: TenantLook, purged: Purged) -> list[str]:
    if not left.has_due:
        return []
    what = ", ".join(
        f"{count} {name}"
        for name, count in (
            ("jobs", left.due),
            ("effects", left.effects_due),
            ("published events", left.events_due),
        )
        if count
    )
    such_as = f" (such as {', '.join(str(job_id) for job_id in left.examples)})" if left.examples else ""
    why = (
        "the time budget was over first; the next run goes on"
        if purged.out_of_time
        else "held by another transaction, or a fault"
    )
    return [f"{_named(tenant)}: {what} are due and still there{such_as}: {why}"]


def _named(tenant: str | None) -> str:
    return "the system" if tenant is None else f"tenant {tenant!r}"
