"""Changes are said once, flapping does not flood, and unknown says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from durable_jobs.redis_health.results import (
    CheckName,
    CheckResult,
    HealthReport,
    Severity,
    critical,
    ok,
    unknown,
    warning,
)
from durable_jobs.redis_health.watch import EVENTS, QUIET, RECOVERED, CheckState, advance
from durable_jobs.stores.protocols import NewEvent

START = datetime(2026, 1, 1, tzinfo=UTC)
INTERVAL = timedelta(minutes=5)

UP = ok(CheckName.CONNECTION, "connected")
DOWN = critical(CheckName.CONNECTION, "refused", "nothing listens")
HIDDEN = unknown(CheckName.CONNECTION, "hidden", "hidden")
ROOMY = ok(CheckName.MEMORY, "10 %", share=0.1)
ALMOST = replace(ok(CheckName.MEMORY, "78 %"), near=True)
HIGH = warning(CheckName.MEMORY, "high", "85 %")
FULL = critical(CheckName.MEMORY, "full", "100 %")

Looks = Iterable[CheckResult | Sequence[CheckResult]]


def watch(looks: Looks, every: timedelta = INTERVAL) -> list[tuple[timedelta, NewEvent]]:
    """The events of a series of looks, each with its time since the start."""
    states: dict[CheckName, CheckState] = {}
    said: list[tuple[timedelta, NewEvent]] = []
    for number, look in enumerate(looks):
        results = (look,) if isinstance(look, CheckResult) else tuple(look)
        now = START + number * every
        step = advance(states, HealthReport("jobs", "h:6379", "production", now, results), now)
        states |= {state.check: state for state in step.states}
        said += [(now - START, event) for event in step.events]
    return said


def names(looks: Looks, every: timedelta = INTERVAL) -> list[str]:
    """The names of the events without their common beginning."""
    return [event.event.removeprefix("redis.health.") for _, event in watch(looks, every)]


def test_t23_a_failure_is_said_at_the_first_look_and_once() -> None:
    assert names([UP, DOWN, DOWN, DOWN]) == ["connection_failed"]
    assert names([DOWN, DOWN]) == ["connection_failed"]


def test_t24_a_recovery_is_said_at_the_first_look_and_once() -> None:
    said = watch([UP, DOWN, DOWN, UP, UP])
    assert [(at, event.event) for at, event in said][1:] == [(3 * INTERVAL, RECOVERED)]
    recovery = said[1][1]
    assert recovery.severity == "INFO"
    assert recovery.payload["checks"] == [{"check": "connection", "failedForSeconds": 600}]


def test_nothing_is_said_of_what_is_well() -> None:
    assert names([[UP, ROOMY]] * 5) == []


def test_unknown_is_neither_a_failure_nor_a_recovery() -> None:
    assert names([UP, HIDDEN, UP]) == []
    assert names([DOWN, HIDDEN, DOWN, HIDDEN, UP]) == ["connection_failed", "recovered"]


def test_each_check_has_its_event_and_severity() -> None:
    assert set(EVENTS) == set(CheckName)
    (_, event), *_ = watch([critical(CheckName.TLS, "plaintext_accepted", "port 6379 answers in plaintext")])
    assert (event.event, event.severity) == ("redis.health.tls_disabled", "CRITICAL")
    assert event.payload["kind"] == "plaintext_accepted"
    assert (event.payload["target"], event.payload["environment"]) == ("jobs", "production")
    assert event.tenant_id is None


def test_a_warning_ends_only_well_below_its_limit() -> None:
    assert names([HIGH, ALMOST, HIGH, ALMOST, ROOMY]) == ["memory_warning", "recovered"]
    assert names([ALMOST, ALMOST]) == []


def test_a_warning_that_becomes_critical_is_said_again() -> None:
    said = watch([HIGH, FULL, HIGH, FULL, ROOMY], timedelta(seconds=10))
    assert [event.severity for _, event in said] == ["WARNING", "CRITICAL", "INFO"]


def test_what_another_failure_explains_is_not_said() -> None:
    explained = replace(critical(CheckName.WRITES, "out_of_memory", "full"), cause=CheckName.MEMORY)
    assert names([[FULL, explained], [ROOMY, ok(CheckName.WRITES, "accepted")]]) == [
        "memory_warning",
        "recovered",
    ]
    assert names([[ROOMY, explained]]) == ["write_failed"]


def test_recoveries_of_one_look_are_one_event() -> None:
    said = watch([[DOWN, HIGH], [UP, ROOMY]])
    assert [event.event for _, event in said[2:]] == [RECOVERED]
    assert [entry["check"] for entry in said[2][1].payload["checks"]] == ["connection", "memory"]


def test_up_and_down_every_10_seconds_for_10_minutes_does_not_flood() -> None:
    looks = [DOWN, UP] * 30
    said = watch(looks, timedelta(seconds=10))
    assert 2 <= len(said) <= 6
    assert said[-1][1].event == RECOVERED
    assert any(event.payload.get("unsaidChanges", 0) > 5 for _, event in said)


def test_an_outage_after_flapping_is_still_said_within_an_interval() -> None:
    looks = [DOWN, UP, DOWN, *[DOWN] * 30]
    said = watch(looks, timedelta(seconds=10))
    assert [event.event for _, event in said] == [
        "redis.health.connection_failed",
        RECOVERED,
        "redis.health.connection_failed",
    ]
    assert said[-1][0] <= INTERVAL


def test_on_schedule_every_change_is_said() -> None:
    assert (
        names([DOWN, UP, DOWN, UP], timedelta(minutes=4, seconds=55))
        == ["connection_failed", "recovered"] * 2
    )


LOOK = st.sampled_from([UP, DOWN, HIDDEN, HIGH, FULL, ALMOST, ROOMY])


@given(st.lists(LOOK, max_size=80), st.integers(min_value=1, max_value=400))
def test_whatever_is_seen_failures_are_bounded_and_every_recovery_follows_one(
    looks: list[CheckResult], seconds: int
) -> None:
    every = timedelta(seconds=seconds)
    open_failures: set[str] = set()
    times: dict[tuple[str, str], list[timedelta]] = {}
    for at, event in watch(looks, every):
        if event.event == RECOVERED:
            recovered = {entry["check"] for entry in event.payload["checks"]}
            assert recovered <= open_failures
            open_failures -= recovered
            continue
        check, severity = event.payload["check"], event.severity
        assert check not in open_failures or severity == Severity.CRITICAL
        open_failures.add(check)
        times.setdefault((check, severity), []).append(at)
    for said in times.values():
        assert all(later - earlier >= QUIET for earlier, later in zip(said, said[2:], strict=False))
    for state_check, last in {result.check: result for result in looks}.items():
        if last in (UP, ROOMY):
            assert state_check.value not in open_failures
