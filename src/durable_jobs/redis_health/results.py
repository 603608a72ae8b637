"""What a check found: ok, failed or unknown, and always why.

"Unknown" is what could not be looked at (hidden by ACLs or by a provider, or out of reach); it is never
taken for a failure nor for a recovery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic.alias_generators import to_camel

Fact = str | int | float | bool | None


class CheckName(StrEnum):
    """Everything that is looked at, in the order in which it is shown."""

    CONNECTION = "connection"
    LATENCY = "latency"
    TLS = "tls"
    CERTIFICATE = "certificate"
    AUTH = "auth"
    ROLE = "role"
    REPLICATION = "replication"
    MEMORY = "memory"
    EVICTION = "eviction"
    WRITES = "writes"
    PERSISTENCE = "persistence"


class Outcome(StrEnum):
    """How a check ended."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Severity(StrEnum):
    """How much it matters to the people on call."""

    CRITICAL = "CRITICAL"
    WARNING = "WARNING"
    INFO = "INFO"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check.

    `kind` is a stable word for programs, `reason` a sentence for people. `near` marks an ok that is too
    close to the limit to end a warning. `cause` names the check whose failure explains this one.
    """

    check: CheckName
    outcome: Outcome
    kind: str
    reason: str
    severity: Severity | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)
    near: bool = False
    cause: CheckName | None = None

    @property
    def failed(self) -> bool:
        """Whether something is wrong."""
        return self.outcome is Outcome.FAILED

    def as_json(self) -> dict[str, object]:
        """The result as the CLI and the API print it."""
        return {
            "check": self.check.value,
            "outcome": self.outcome.value,
            "kind": self.kind,
            "reason": self.reason,
            "severity": self.severity.value if self.severity else None,
            "facts": {to_camel(name): fact for name, fact in self.facts.items()},
        }


def ok(check: CheckName, reason: str, **facts: Fact) -> CheckResult:
    """A check that found nothing wrong."""
    return CheckResult(check, Outcome.OK, "ok", reason, facts=facts)


def critical(check: CheckName, kind: str, reason: str, **facts: Fact) -> CheckResult:
    """A check that found something people must act on now."""
    return CheckResult(check, Outcome.FAILED, kind, reason, Severity.CRITICAL, facts)


def warning(check: CheckName, kind: str, reason: str, **facts: Fact) -> CheckResult:
    """A check that found something people should act on."""
    return CheckResult(check, Outcome.FAILED, kind, reason, Severity.WARNING, facts)


def unknown(check: CheckName, kind: str, reason: str, **facts: Fact) -> CheckResult:
    """A check that could not look."""
    return CheckResult(check, Outcome.UNKNOWN, kind, reason, facts=facts)


@dataclass(frozen=True, slots=True)
class HealthReport:
    """All checks of one target, seen at one time."""

    target: str
    endpoint: str
    environment: str
    checked_at: datetime
    results: tuple[CheckResult, ...]

    def __getitem__(self, check: CheckName) -> CheckResult:
        """The result of one check.

        Raises:
            KeyError: the report does not have it.
        """
        for result in self.results:
            if result.check is check:
                return result
        raise KeyError(check)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """What is wrong, worst first."""
        wrong = [result for result in self.results if result.failed]
        return tuple(sorted(wrong, key=lambda result: result.severity is not Severity.CRITICAL))

    def as_json(self) -> dict[str, object]:
        """The report as the CLI and the API print it."""
        return {
            "target": self.target,
            "endpoint": self.endpoint,
            "environment": self.environment,
            "checkedAt": self.checked_at.isoformat(),
            "healthy": not self.failures,
            "checks": [result.as_json() for result in self.results],
        }


def in_order(results: Iterable[CheckResult]) -> tuple[CheckResult, ...]:
    """Results in the order in which people read them."""
    places = list(CheckName)
    return tuple(sorted(results, key=lambda result: places.index(result.check)))
