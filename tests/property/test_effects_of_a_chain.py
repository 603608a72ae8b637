"""Whatever becomes of the attempts at one effect, in any order: made at most once, and never forgotten.

Each attempt is a job of one chain (retried or submitted anew) with a fate: it works, is refused, loses the
answer, dies before or after the call. A person who is asked tells the truth.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from durable_jobs import EffectNotMade, JobContext
from durable_jobs.effects import Effect, EffectState, EffectUnknown
from durable_jobs.jobs import ClaimedJob
from durable_jobs.tenants import job_tenant_scope
from tests.property.worlds import World, memory_world, pg_world
from tests.support.cluster import Urls
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded

FATES = ["works", "refused", "answer lost", "cut before", "dies before", "dies after", "fails later"]
POLICIES = ["stop", "repeat", "probe", "probe does not know"]
ATTEMPTS = st.lists(st.tuples(st.sampled_from(FATES), st.sampled_from(["retry", "resubmit"])), max_size=8)


class Chain:
    """One request, and the attempts at its effect."""

    def __init__(self, world: World, policy: str) -> None:
        self.world, self.policy = world, policy
        self.made: list[str] = []
        self.executor: UUID

    def options(self) -> dict[str, Any]:
        """Return what the effect's block is given."""
        return {
            "stop": {},
            "repeat": {"on_unknown": "repeat"},
            "probe": {"probe": lambda effect: effect.provider_key in self.made},
            "probe does not know": {"probe": lambda _: None},
        }[self.policy]

    async def begin(self) -> ClaimedJob:
        """Register and claim the first job."""
        self.executor = await enter(self.world.store)
        with job_tenant_scope("acme"):
            await self.world.store.register_idempotent([new_job(max_retries=99)])
        return await self.claim()

    async def claim(self) -> ClaimedJob:
        """Claim the only waiting job."""
        [job] = (await self.world.store.claim(self.executor, QUEUE, 9)).jobs
        return job

    async def attempt(self, job: ClaimedJob, fate: str) -> str:
        """Execute one job and tell how it ended: done, failed or stopped."""
        context = JobContext(job, lambda _job, _text: None, effects=self.world.store)
        block = context.effect("payment", **self.options())
        try:
            effect = await block.__aenter__()
        except EffectUnknown:
            return "stopped"
        if effect.already_done:
            await block.__aexit__(None, None, None)
            return "failed" if fate == "fails later" else "done"
        if fate in ("works", "answer lost", "dies after", "fails later"):
            self.call(effect)
        if fate.startswith("dies"):
            return "failed"
        error = {"refused": EffectNotMade(), "answer lost": TimeoutError(), "cut before": TimeoutError()}.get(
            fate
        )
        await block.__aexit__(None if error is None else type(error), error, None)
        return "done" if fate == "works" else "failed"

    def call(self, effect: Effect) -> None:
        """Do what the provider does: with `repeat` it knows its keys again."""
        if self.policy != "repeat" or effect.provider_key not in self.made:
            self.made.append(effect.provider_key)

    async def again(self, job: ClaimedJob, ended: str, way: str) -> ClaimedJob:
        """Settle what a person is asked for, and make the next job."""
        store = self.world.store
        await store.finish([failed(job, retryable=ended != "stopped")])
        with job_tenant_scope("acme"):
            if ended == "stopped":
                [view] = await store.effects(states=[EffectState.UNKNOWN])
                await store.settle_effect(view.effect_id, happened=bool(self.made))
            if way == "retry" and ended != "stopped":
                await store.retry(job.job_id, max_pending=None)
            else:
                await store.resubmit(job.job_id, max_pending=None)
        return await self.claim()

    def check(self) -> None:
        """Look at the provider and at the record."""
        states = [row["state"] for row in self.world.probe.effects()]
        assert len(self.made) <= 1, "it was made twice"
        assert len(states) <= 1, "its record is there twice"
        if self.made:
            assert states, "it was made and is forgotten"
        else:
            assert states != ["CONFIRMED"], "it was not made and is silently done"

    async def live(self, attempts: list[tuple[str, str]]) -> None:
        """Go through the attempts, and end with some that work."""
        job = await self.begin()
        # After a last one that stops, a person has settled it, so the next is done.
        for fate, way in [*attempts, ("works", "retry"), ("works", "retry")]:
            ended = await self.attempt(job, fate)
            self.check()
            if ended == "done":
                break
            job = await self.again(job, ended, way)
            self.check()
        assert ended == "done"
        await self.world.store.finish([succeeded(job)])
        assert len(self.made) == 1
        assert [row["state"] for row in self.world.probe.effects()] == ["CONFIRMED"]


def live_in(world: World, examples: int) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(policy=st.sampled_from(POLICIES), attempts=ATTEMPTS)
    def lives(policy: str, attempts: list[tuple[str, str]]) -> None:
        world.reset()
        world.run(Chain(world, policy).live(attempts))

    lives()


def test_in_memory() -> None:
    with memory_world() as world:
        live_in(world, 300)


def test_in_postgres(urls: Urls) -> None:
    with pg_world(urls) as world:
        live_in(world, 40)
