"""From looks to events: what changed since the last look is said, once.

A failure is said at the first look that finds it and a recovery at the first look that does not.
What comes and goes is not said each time: the same failure again within QUIET of the last time waits
until QUIET is over. "Unknown" changes nothing, and a failure that another one explains is not said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from durable_jobs.redis_health.results import CheckName, CheckResult, HealthReport, Outcome, Severity
from durable_jobs.stores.protocols import NewEvent

# Below the five minutes between two looks, so that a look on schedule is never kept quiet.
QUIET = timedelta(minutes=4)

EVENTS = {
    CheckName.CONNECTION: "redis.health.connection_failed",
    CheckName.LATENCY: "redis.health.latency_warning",
    CheckName.TLS: "redis.health.tls_disabled",
    CheckName.CERTIFICATE: "redis.health.certificate_warning",
    CheckName.AUTH: "redis.health.auth_disabled",
    CheckName.ROLE: "redis.health.role_unexpected",
    CheckName.REPLICATION: "redis.health.replication_failed",
    CheckName.MEMORY: "redis.health.memory_warning",
    CheckName.EVICTION: "redis.health.eviction_warning",
    CheckName.WRITES: "redis.health.write_failed",
    CheckName.PERSISTENCE: "redis.health.persistence_warning",
}
RECOVERED = "redis.health.recovered"


@dataclass(frozen=True, slots=True)
class CheckState:
    """What is remembered of one check of one target.

    `announced`: a failure was said and its recovery not yet. `said_at` and `severity` are those of the
    last failure said; `changes` counts what was seen since and not said.
    """

    check: CheckName
    failing: bool
    announced: bool
    since: datetime
    said_at: datetime | None = None
    severity: Severity | None = None
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What to remember and what to say after a look."""

    states: tuple[CheckState, ...]
    events: tuple[NewEvent, ...]


def advance(
    before: Mapping[CheckName, CheckState], report: HealthReport, now: datetime, *, quiet: timedelta = QUIET
) -> Step:
    """Compare a report with what is remembered; pure."""
    states: list[CheckState] = []
    events: list[NewEvent] = []
    recovered: list[CheckState] = []
    for result in _telling(report):
        old = before.get(result.check) or CheckState(result.check, False, False, now)
        new = _see_failure(old, result, now, quiet) if result.failed else _see_success(old, result, now)
        states.append(new)
        if new.said_at != old.said_at:
            events.append(_failure(report, result, old))
        if old.announced and not new.announced:
            recovered.append(old)
    if recovered:
        events.append(_recovery(report, recovered, now))
    return Step(tuple(states), tuple(events))


def _telling(report: HealthReport) -> Iterable[CheckResult]:
    failing = {result.check for result in report.failures}
    for result in report.results:
        if result.outcome is not Outcome.UNKNOWN and result.cause not in failing:
            yield result


def _see_failure(old: CheckState, result: CheckResult, now: datetime, quiet: timedelta) -> CheckState:
    seen = old if old.failing else replace(old, failing=True, since=now, changes=old.changes + 1)
    worse = result.severity is Severity.CRITICAL and old.severity is not Severity.CRITICAL
    due = old.said_at is None or now - old.said_at >= quiet
    if worse or (due and not old.announced):
        return replace(seen, announced=True, said_at=now, severity=result.severity, changes=0)
    return seen


def _see_success(old: CheckState, result: CheckResult, now: datetime) -> CheckState:
    if old.announced and result.near:
        return old
    if old.announced:
        return replace(old, failing=False, announced=False, since=now, changes=0)
    if old.failing:
        return replace(old, failing=False, since=now, changes=old.changes + 1)
    return old


def _failure(report: HealthReport, result: CheckResult, old: CheckState) -> NewEvent:
    severity = result.severity or Severity.WARNING
    payload = _about(report) | result.as_json() | {"severity": severity.value, "unsaidChanges": old.changes}
    return NewEvent(EVENTS[result.check], severity.value, payload)


def _recovery(report: HealthReport, recovered: list[CheckState], now: datetime) -> NewEvent:
    checks = [
        {"check": state.check.value, "failedForSeconds": round((now - state.since).total_seconds())}
        for state in recovered
    ]
    payload = _about(report) | {"severity": Severity.INFO.value, "checks": checks}
    return NewEvent(RECOVERED, Severity.INFO.value, payload)


def _about(report: HealthReport) -> dict[str, object]:
    return {"target": report.target, "endpoint": report.endpoint, "environment": report.environment}
