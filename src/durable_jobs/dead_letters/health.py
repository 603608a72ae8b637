"""Whether dead letters are becoming a problem: too many of them, or too many failures lately."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator

from durable_jobs.dead_letters.store import LetterCount
from durable_jobs.errors import BadInput

LATELY = timedelta(hours=1)


class Thresholds(BaseModel):
    """From where on dead letters are told of."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    warning_count: int = Field(100, ge=1, description="Dead letters that are worth a warning.")
    critical_count: int = Field(1_000, ge=1, description="Dead letters that are critical.")
    warning_rate: float = Field(
        0.2, gt=0, le=1, description="Failed part of the last hour's executions that is worth a warning."
    )
    critical_rate: float = Field(
        0.5, gt=0, le=1, description="Failed part of the last hour's executions that is critical."
    )
    least_executions: int = Field(
        10, ge=1, description="Executions in the last hour below which the failed part says nothing."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Thresholds:
        if self.warning_count > self.critical_count or self.warning_rate > self.critical_rate:
            raise ValueError("a warning must not begin above what is critical")
        return self


class LetterHealth(NamedTuple):
    """How things are over all tenants."""

    letters: int
    at_limit: int
    failed: int
    ended: int
    severity: str | None
    """CRITICAL, WARNING, or None."""
    why: str

    @property
    def event(self) -> str | None:
        """Name of the event that tells of it."""
        return None if self.severity is None else f"jobs.dlq.{self.severity.lower()}"


def judge(counts: Iterable[LetterCount], thresholds: Thresholds) -> LetterHealth:
    """Compare all tenants' figures with the thresholds."""
    seen = list(counts)
    letters, at_limit = sum(c.letters for c in seen), sum(c.at_limit for c in seen)
    failed, ended = sum(c.failed for c in seen), sum(c.ended for c in seen)
    rate = failed / ended if ended >= thresholds.least_executions else 0.0
    for severity, count, part in (
        ("CRITICAL", thresholds.critical_count, thresholds.critical_rate),
        ("WARNING", thresholds.warning_count, thresholds.warning_rate),
    ):
        if letters >= count or rate >= part:
            why = f"{letters:,} dead letters" if letters >= count else f"{rate:.0%} of executions failed"
            return LetterHealth(letters, at_limit, failed, ended, severity, why)
    return LetterHealth(letters, at_limit, failed, ended, None, "within the thresholds")


def require_some(limit: int) -> int:
    """Return a limit that lets something happen.

    Raises:
        BadInput: it is below 1.
    """
    if limit < 1:
        raise BadInput(f"per_tenant is {limit}: it must be at least 1; to stop retries, pause the deployment")
    return limit
