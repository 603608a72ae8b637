"""EXE-4: the provider works and the answer is lost; what happens then is the effect's policy.

Never silently done, never silently repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from durable_jobs import JobContext, JobState, NotRetryable, Skipped
from durable_jobs.effects import Effect, EffectNotMade, EffectState
from durable_jobs.errors import NotAllowed
from durable_jobs.tenants import job_tenant_scope
from tests.integration.effects.provider import Provider
from tests.integration.effects.world import TENANT, Request, World
from tests.support.eventually import eventually

Declare = Callable[..., None]


@pytest.fixture(params=["async", "thread"])
def pays(request: pytest.FixtureRequest, world: World, provider: Provider) -> Declare:
    """Declare a processor that pays through the provider, with the options of its effect."""

    def declare(**options: Any) -> None:
        async def process(asked: Request, context: JobContext) -> Any:
            async with context.effect("invoice 7", "PAYMENT", **options) as effect:
                if effect.already_done:
                    return Skipped("paid", effect.original_job_id)
                async with httpx.AsyncClient() as client:
                    answer = await client.post(provider.url, json=order(asked, effect))
                return paid(answer)

        def in_a_thread(asked: Request, context: JobContext) -> Any:
            with context.effect("invoice 7", "PAYMENT", **options) as effect:
                if effect.already_done:
                    return Skipped("paid", effect.original_job_id)
                return paid(httpx.post(provider.url, json=order(asked, effect)))

        world.declare(process if request.param == "async" else in_a_thread)

    def order(asked: Request, effect: Effect) -> dict[str, str]:
        return {"what": asked.what, "key": effect.provider_key}

    def paid(answer: httpx.Response) -> Any:
        if answer.status_code == 503:
            raise EffectNotMade("the provider was busy and did nothing")
        return answer.json()

    return declare


def asks(provider: Provider, request_is_async: bool) -> Callable[[Effect], Any]:
    async def probe(effect: Effect) -> bool:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{provider.url}/{effect.provider_key}")).status_code == 200

    def sync_probe(effect: Effect) -> bool:
        return httpx.get(f"{provider.url}/{effect.provider_key}").status_code == 200

    return probe if request_is_async else sync_probe


async def test_a_lost_answer_leaves_the_effect_unknown(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays()
    provider.drops = 1
    job = await world.executed()
    assert (job.state, job.retryable) == (JobState.FAILED, True)
    assert provider.times("it") == 1
    assert world.effects() == [("PAYMENT", "UNKNOWN")]


async def test_stop_asks_a_person_and_repeats_nothing(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays()
    provider.drops = 1
    first = await world.executed()
    retry = await world.retried(first)
    [row] = world.probe.effects()
    assert (retry.state, retry.retryable) == (JobState.FAILED, False)
    assert retry.failed_reason is not None
    assert retry.failed_reason.startswith(
        f"EffectUnknown: effect PAYMENT may have happened: job {first.job_id}"
    )
    assert f"durable-jobs effects confirm {row['id']}" in retry.failed_reason
    assert f"durable-jobs effects release {row['id']}" in retry.failed_reason
    assert (provider.calls, row["state"], row["key"]) == (1, "UNKNOWN", "invoice 7")
    assert world.events() == ["jobs.effect.unknown"]
    # Another job of the same business key is stopped as well.
    assert (await world.executed()).retryable is False
    assert provider.calls == 1


@pytest.mark.parametrize("happened", [True, False])
async def test_a_person_settles_it_and_the_resubmitted_job_goes_on(
    world: World, provider: Provider, pays: Declare, happened: bool
) -> None:
    pays()
    provider.drops = 1
    first = await world.executed()
    stopped = await world.retried(first)
    with job_tenant_scope(TENANT):
        [view] = await world.store.effects(states=[EffectState.UNKNOWN])
        await world.store.settle_effect(view.effect_id, happened=happened, by="ann")
    anew = await world.resubmitted(stopped)
    assert anew.state is JobState.SUCCEEDED, anew.failed_reason
    if happened:
        assert world.skipped(anew) == {"reason": "paid", "originalJobId": str(first.job_id)}
    else:
        assert anew.result == {"status": "OK", "value": {"number": 2}}
    assert provider.calls == (1 if happened else 2)
    assert world.effects() == [("PAYMENT", "CONFIRMED")]


async def test_repeat_gives_the_provider_the_same_key_so_it_works_once(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays(on_unknown="repeat")
    provider.respects_keys = True
    provider.drops = 2
    job = await world.executed()
    job = await world.retried(job)
    job = await world.retried(job)
    assert job.state is JobState.SUCCEEDED, job.failed_reason
    assert (provider.calls, provider.times("it")) == (3, 1)
    assert world.effects() == [("PAYMENT", "CONFIRMED")]
    assert world.events() == []


@pytest.mark.parametrize("probe_is_async", [True, False])
async def test_a_probe_finds_that_it_happened(
    world: World, provider: Provider, pays: Declare, probe_is_async: bool
) -> None:
    pays(probe=asks(provider, probe_is_async))
    provider.drops = 1
    first = await world.executed()
    retry = await world.retried(first)
    assert world.skipped(retry) == {"reason": "paid", "originalJobId": str(first.job_id)}, retry.failed_reason
    assert provider.calls == 1
    assert world.effects() == [("PAYMENT", "CONFIRMED")]


@pytest.mark.parametrize("probe_is_async", [True, False])
async def test_a_probe_finds_that_it_did_not_happen(
    world: World, provider: Provider, pays: Declare, probe_is_async: bool
) -> None:
    pays(probe=asks(provider, probe_is_async))
    provider.drops = 1
    first = await world.executed()
    provider.done.clear()
    retry = await world.retried(first)
    assert retry.state is JobState.SUCCEEDED, retry.failed_reason
    assert provider.times("it") == 1
    assert world.effects() == [("PAYMENT", "CONFIRMED")]


@pytest.mark.parametrize("on_unknown", ["stop", "repeat"])
async def test_a_probe_that_does_not_know_leaves_it_to_the_policy(
    world: World, provider: Provider, pays: Declare, on_unknown: str
) -> None:
    pays(probe=lambda _: None, on_unknown=on_unknown)
    provider.drops = 1
    retry = await world.retried(await world.executed())
    assert (retry.state, retry.retryable) == (
        (JobState.FAILED, False) if on_unknown == "stop" else (JobState.SUCCEEDED, True)
    )
    assert provider.calls == (1 if on_unknown == "stop" else 2)


async def test_a_probe_that_fails_or_answers_nonsense_decides_nothing(
    world: World, provider: Provider, pays: Declare
) -> None:
    def probe(effect: Effect) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    answers: list[Any] = [ConnectionError("provider is away"), "yes", True]
    pays(probe=probe)
    provider.drops = 1
    first = await world.executed()
    away = await world.retried(first)
    assert (away.failed_reason, away.retryable) == ("ConnectionError: provider is away", True)
    nonsense = await world.retried(away)
    assert nonsense.failed_reason is not None
    assert nonsense.failed_reason.startswith("BadInput: the probe returned 'yes': return True")
    assert world.effects() == [("PAYMENT", "UNKNOWN")]
    assert world.skipped(await world.retried(nonsense)) is not None
    assert provider.calls == 1


async def test_what_a_probe_finds_out_is_kept(world: World, provider: Provider, pays: Declare) -> None:
    async def probe(effect: Effect) -> bool:
        effect.result = {"payment": 7}
        return True

    pays(probe=probe)
    provider.drops = 1
    await world.retried(await world.executed())
    assert [row["result"] for row in world.probe.effects()] == [{"payment": 7}]


async def test_a_refusal_releases_the_effect_so_a_retry_makes_it(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays()
    provider.refuses = 1
    refused = await world.executed()
    assert refused.failed_reason == "EffectNotMade: the provider was busy and did nothing"
    assert (refused.retryable, world.effects()) == (True, [])
    assert (await world.retried(refused)).state is JobState.SUCCEEDED
    assert provider.times("it") == 1


async def test_exceptions_that_prove_it_release_the_effect(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays(releases=(httpx.ConnectError,))
    url, provider.url = provider.url, "http://127.0.0.1:1"
    unreached = await world.executed()
    assert unreached.failed_reason is not None
    assert unreached.failed_reason.startswith("ConnectError")
    assert world.effects() == []
    provider.url = url
    assert (await world.retried(unreached)).state is JobState.SUCCEEDED


async def test_a_repetition_that_is_refused_does_not_prove_that_the_first_did_not_happen(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays(on_unknown="repeat")
    provider.drops = 1
    first = await world.executed()
    provider.refuses = 1
    refused = await world.retried(first)
    assert refused.failed_reason is not None
    assert refused.failed_reason.startswith("EffectNotMade")
    assert world.effects() == [("PAYMENT", "UNKNOWN")]


async def test_any_other_error_and_not_retryable_leave_it_unknown(world: World) -> None:
    async def process(_: Request, context: JobContext) -> None:
        async with context.effect("k", "PAYMENT") as effect:
            assert not effect.already_done
            raise NotRetryable("card declined, it seems")

    world.declare(process)
    job = await world.executed()
    assert (job.failed_reason, job.retryable) == ("NotRetryable: card declined, it seems", False)
    assert world.effects() == [("PAYMENT", "UNKNOWN")]


async def test_an_execution_that_is_timed_out_in_its_block_leaves_it_unknown(
    world: World, provider: Provider
) -> None:
    async def process(request: Request, context: JobContext) -> Any:
        async with context.effect("k", "PAYMENT") as effect:
            if effect.already_done:
                return Skipped("paid")
            async with httpx.AsyncClient() as client:
                await client.post(provider.url, json={"what": request.what}, timeout=30)
        return None

    world.declare(process)
    provider.hold.clear()
    job = await world.executed(timeout=timedelta(milliseconds=300))
    provider.hold.set()
    assert job.failed_reason == "timed out after 0.3 s"
    with job_tenant_scope(TENANT):
        assert [view.state for view in await world.store.effects()] == [EffectState.UNKNOWN]
    assert (await world.retried(job)).retryable is False
    assert provider.times("it") == 1


async def test_a_twin_waits_for_the_call_and_skips(world: World, provider: Provider, pays: Declare) -> None:
    pays()
    provider.hold.clear()
    jobs = [await world.submit() for _ in range(3)]
    working = asyncio.create_task(world.work())
    await asyncio.to_thread(provider.working.wait, 10)
    with job_tenant_scope(TENANT):
        [view] = await world.store.effects()
        with pytest.raises(NotAllowed, match="wait until that job has ended"):
            await world.store.settle_effect(view.effect_id, happened=False)
    provider.hold.set()
    await working
    results = [(await world.get(job)).result["status"] for job in jobs]
    assert sorted(results) == ["OK", "SKIPPED", "SKIPPED"]
    assert provider.calls == 1


async def test_a_twin_waits_only_so_long(world: World, provider: Provider, pays: Declare) -> None:
    pays(wait=timedelta(milliseconds=200))
    provider.hold.clear()
    jobs = [await world.submit() for _ in range(2)]
    working = asyncio.create_task(world.work())
    await asyncio.to_thread(provider.working.wait, 10)

    async def one_gave_up() -> bool:
        return JobState.FAILED in [(await world.get(job)).state for job in jobs]

    await eventually(one_gave_up)
    provider.hold.set()
    await working
    [given_up] = [job for job in [await world.get(job) for job in jobs] if job.state is JobState.FAILED]
    assert given_up.failed_reason is not None
    assert given_up.failed_reason.startswith("EffectHeld: effect PAYMENT is being made by job ")
    assert given_up.retryable
    assert world.skipped(await world.retried(given_up)) is not None
    assert provider.calls == 1


async def test_twins_at_an_unknown_effect_repeat_it_once(
    world: World, provider: Provider, pays: Declare
) -> None:
    pays(on_unknown="repeat")
    provider.drops = 1
    await world.executed()
    jobs = [await world.submit() for _ in range(5)]
    await world.work()
    assert {(await world.get(job)).state for job in jobs} == {JobState.SUCCEEDED}
    assert provider.calls == 2
    assert world.effects() == [("PAYMENT", "CONFIRMED")]
    assert world.events() == []
