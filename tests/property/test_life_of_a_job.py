"""Whatever callers, executors, people and the reconciler do, in any order: every promise holds."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machine import JobsMachine
from tests.property.worlds import World, memory_world, pg_world
from tests.support.cluster import Urls

# DURABLE_JOBS_PROPERTY_EXAMPLES=2000 looks longer, and elsewhere each time.
LONGER = int(os.environ.get("DURABLE_JOBS_PROPERTY_EXAMPLES", "0"))


def attack(world: World, examples: int, *, shrink: bool = True) -> None:
    """Run the machine against a world."""
    machine = type("Machine", (JobsMachine,), {"world": world})
    phases = [Phase.generate, *([Phase.shrink] if shrink else [])]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=LONGER or examples,
            stateful_step_count=40,
            derandomize=not LONGER,
            database=None,
            deadline=None,
            phases=phases,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(7_200 if LONGER else 300)
def test_in_memory() -> None:
    with memory_world() as world:
        attack(world, 100)


@pytest.mark.timeout(7_200 if LONGER else 300)
def test_in_postgres(urls: Urls) -> None:
    with pg_world(urls) as world:
        attack(world, 25)
