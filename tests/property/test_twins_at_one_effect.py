"""Several jobs at one effect at once, in any order of their steps and deaths: made at most once.

Nothing here acts after it was declared dead; what a frozen execution may still do is tried elsewhere.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from durable_jobs import EffectNotMade, JobContext
from durable_jobs.effects import Effect, EffectHeld, EffectState, EffectUnknown
from durable_jobs.effects.block import EffectBlock
from durable_jobs.effects.store import Answer, BegunEffect
from durable_jobs.jobs import ClaimedJob, Outcome
from durable_jobs.stores.memory import InMemoryJobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.property.worlds import World, memory_world, pg_world
from tests.support.cluster import Urls
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded

POLICIES = ["stop", "repeat", "probe", "probe does not know"]
WHICH = st.integers(0, 9)


class Running:
    """One execution: claimed, then inside of its block, then past its call."""

    def __init__(self, job: ClaimedJob) -> None:
        self.job = job
        self.block: EffectBlock
        self.effect: Effect
        self.is_inside = False
        self.has_called = False


class Twins(RuleBasedStateMachine):
    """Executions of jobs with the same business key."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        self.world.reset()
        self.running: list[Running] = []
        self.made: list[str] = []
        self.executor = self.world.run(enter(self.world.store))

    @initialize(policy=st.sampled_from(POLICIES))
    def choose(self, policy: str) -> None:
        self.policy = policy
        self.options: dict[str, Any] = {
            "stop": {},
            "repeat": {"on_unknown": "repeat"},
            "probe": {"probe": lambda effect: effect.provider_key in self.made},
            "probe does not know": {"probe": lambda _: None},
        }[policy]

    @precondition(lambda self: len(self.running) < 4)
    @rule()
    def claim(self) -> None:
        with job_tenant_scope("acme"):
            self.world.run(self.world.store.register_idempotent([new_job()]))
        [job] = self.world.run(self.world.store.claim(self.executor, QUEUE, 1)).jobs
        self.running.append(Running(job))

    @precondition(lambda self: any(not one.is_inside for one in self.running))
    @rule(which=WHICH)
    def begin(self, which: int) -> None:
        one = self.one(which, inside=False)
        try:
            self.world.run(self.enter(one))
        except (EffectHeld, EffectUnknown) as error:
            self.end(one, failed(one.job, str(error)))
            return
        if one.effect.already_done:
            assert self.made, "it is taken for done and was never made"
            self.world.run(one.block.__aexit__(None, None, None))
            self.end(one, succeeded(one.job))
        else:
            one.is_inside = True

    @precondition(lambda self: any(one.is_inside and not one.has_called for one in self.running))
    @rule()
    def call(self) -> None:
        self.work(next(one for one in self.running if one.is_inside and not one.has_called))

    def work(self, one: Running) -> None:
        """Have the provider work, once for each execution; with `repeat` it knows its keys again."""
        if one.has_called:
            return
        one.has_called = True
        if self.policy != "repeat" or one.effect.provider_key not in self.made:
            self.made.append(one.effect.provider_key)

    @precondition(lambda self: any(one.is_inside for one in self.running))
    @rule(which=WHICH, works=st.booleans(), answer=st.sampled_from(["arrives", "is lost"]))
    def leave(self, which: int, works: bool, answer: str) -> None:
        one = self.one(which, inside=True)
        if works:
            self.work(one)
        error: Exception | None = None
        if not one.has_called:
            error = EffectNotMade() if answer == "arrives" else TimeoutError()
        elif answer == "is lost":
            error = TimeoutError()
        self.world.run(one.block.__aexit__(None if error is None else type(error), error, None))
        self.end(one, succeeded(one.job) if error is None else failed(one.job))

    @precondition(lambda self: any(one.is_inside for one in self.running))
    @rule(which=WHICH, works=st.booleans())
    def die(self, which: int, works: bool) -> None:
        one = self.one(which, inside=True)
        if works:
            self.work(one)
        self.end(one, failed(one.job, "stalled"))

    @rule()
    def a_person_settles(self) -> None:
        with job_tenant_scope("acme"):
            for view in self.world.run(self.world.store.effects(states=[EffectState.UNKNOWN])):
                settled = self.world.store.settle_effect(view.effect_id, happened=bool(self.made))
                self.world.run(settled)

    @invariant()
    def made_at_most_once_and_never_forgotten(self) -> None:
        states = [row["state"] for row in self.world.probe.effects()]
        assert len(self.made) <= 1, "it was made twice"
        assert len(states) <= 1, "its record is there twice"
        assert states or not self.made, "it was made and is forgotten"
        assert self.made or states != ["CONFIRMED"], "it was not made and is silently done"
        inside = [one for one in self.running if one.is_inside]
        assert len(inside) <= 1, "two are at it at once"

    def one(self, which: int, *, inside: bool) -> Running:
        some = [one for one in self.running if one.is_inside is inside]
        return some[which % len(some)]

    async def enter(self, one: Running) -> None:
        context = JobContext(one.job, lambda _job, _text: None, effects=self.world.store)
        one.block = context.effect("order 7", "PAYMENT", wait=timedelta(0), **self.options)
        one.effect = await one.block.__aenter__()

    def end(self, one: Running, outcome: Outcome) -> None:
        self.running.remove(one)
        assert self.world.run(self.world.store.finish([outcome])) == []


def attack(world: World, examples: int, *phases: Phase) -> None:
    machine = type("Machine", (Twins,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate, *phases],
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_in_memory() -> None:
    with memory_world() as world:
        attack(world, 100, Phase.shrink)


def test_in_postgres(urls: Urls) -> None:
    with pg_world(urls) as world:
        attack(world, 15, Phase.shrink)


class HoldsNothing(InMemoryJobsStore):
    """Takes a reservation over while its holder lives."""

    def _is_held(self, effect: Any, besides: Any = None) -> bool:
        return False


class ReleasesUnknown(InMemoryJobsStore):
    """Forgets every attempt that did not end well."""

    async def end_effect(
        self, job: ClaimedJob, begun: BegunEffect, *, released: bool, stopped: bool = False
    ) -> None:
        await super().end_effect(job, begun, released=True)


class BelievesReservations(InMemoryJobsStore):
    """Takes an attempt that ended without a word for done."""

    async def begin_effect(self, *args: Any, **kwargs: Any) -> BegunEffect:
        begun = await super().begin_effect(*args, **kwargs)
        return begun._replace(answer=Answer.DONE) if begun.answer is Answer.UNKNOWN else begun


@pytest.mark.parametrize("fault", [HoldsNothing, ReleasesUnknown, BelievesReservations])
def test_planted_faults_are_found(fault: type[InMemoryJobsStore]) -> None:
    with memory_world(fault) as world, pytest.raises(AssertionError):
        attack(world, 100)
