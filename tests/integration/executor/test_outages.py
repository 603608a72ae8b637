"""The database goes away, hangs, is slow or loses an answer: no job is lost, none is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.execution import Stop
from durable_jobs.states import JobState
from tests.integration.executor.local import local_shift, local_store
from tests.integration.executor.shifts import LONG, STALE, Duty
from tests.support.eventually import eventually
from tests.support.tcp_proxy import TcpProxy, proxied

NEVER = timedelta(hours=1)


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[TcpProxy]:
    async with proxied(database_url) as proxy:
        yield proxy


async def test_away_when_a_job_returns_for_less_than_the_threshold_its_outcome_is_late(
    duty: Duty, proxy: TcpProxy
) -> None:
    async with local_shift(duty, local_store(proxy.url)):
        [job] = await duty.submit("ONCE", seconds=0.3)
        await eventually(lambda: duty.traces()[job])
        proxy.cut()
        await eventually(lambda: duty.traces("ended")[job])
        proxy.restore()
        await duty.until([job], "SUCCEEDED")
    assert (await duty.get(job)).claim_count == 1
    assert duty.traces() == {job: 1}
    assert duty.events("jobs.job.late_result") == []


@pytest.mark.parametrize(("name", "state"), [("ONCE", "FAILED"), ("REPLAY", "PENDING")])
async def test_away_when_a_job_returns_for_more_than_the_threshold_it_ends_as_its_type_says(
    duty: Duty, proxy: TcpProxy, name: str, state: str
) -> None:
    async with local_shift(duty, local_store(proxy.url)) as local:
        [job] = await duty.submit(name, seconds=0.3)
        await eventually(lambda: duty.traces()[job])
        proxy.cut()
        await eventually(lambda: duty.traces("ended")[job])
        await duty.reconcile_until_clear()
        assert duty.states([job]) == {state: 1}
        settled = await duty.get(job)
        proxy.restore()
        assert "given this shift up" in (await local.ended()).ended_because
    assert await duty.get(job) == settled
    assert [event["job_id"] for event in duty.events("jobs.job.late_result")] == [job]
    assert duty.traces() == {job: 1}


async def test_a_database_that_hangs_is_bridged_and_the_heartbeat_resumes(
    duty: Duty, proxy: TcpProxy
) -> None:
    async with local_shift(duty, local_store(proxy.url)) as local:
        jobs = await duty.submit("ONCE", 5, seconds=0.5)
        await eventually(lambda: len(duty.traces()) == 5)
        proxy.go_silent()
        await eventually(lambda: duty.store.silent_executors(stale_after=STALE))
        proxy.restore()
        await duty.until(jobs, "SUCCEEDED")
        await eventually(lambda: _silence(duty, local.executor_id, "1 second"))
        assert not local.task.done()
    assert duty.traces() == dict.fromkeys(jobs, 1)


async def test_connections_that_hang_for_ever_are_left_behind(duty: Duty, proxy: TcpProxy) -> None:
    async with local_shift(duty, local_store(proxy.url)) as local:
        [job] = await duty.submit("ONCE", seconds=0.3)
        await eventually(lambda: duty.traces()[job])
        proxy.forget_open_connections()
        await duty.until([job], "SUCCEEDED")
        seen = duty.view(local.executor_id)
        assert seen is not None
        await eventually(
            lambda: (duty.view(local.executor_id) or seen)["last_seen_at"] > seen["last_seen_at"]
        )
        [later] = await duty.submit("ONCE")
        await duty.until([later], "SUCCEEDED")
    assert duty.traces() == {job: 1, later: 1}


def _silence(duty: Duty, executor_id: object, less_than: str) -> bool:
    return bool(
        duty.owner.execute(
            "SELECT 1 FROM job_executors WHERE executor_id = %s AND last_seen_at > now() - %s::interval",
            [executor_id, less_than],
        ).fetchone()
    )


@pytest.mark.parametrize("name", ["ONCE", "REPLAY"])
async def test_a_claim_whose_answer_was_lost_is_given_back_and_runs_once(
    duty: Duty, proxy: TcpProxy, name: str
) -> None:
    [job] = await duty.submit(name)
    proxy.lose_the_answer_to("claim_jobs")
    async with local_shift(duty, local_store(proxy.url), queues=["work"]):
        await eventually(lambda: proxy.lost_answers == 1)
        await duty.until([job], "SUCCEEDED")
    done = await duty.get(job)
    assert (done.claim_count, done.crash_count) == (2, 0)
    assert duty.traces() == {job: 1}
    assert duty.counters_equal_the_table()


async def test_a_shift_that_ends_gives_back_a_claim_without_an_answer(duty: Duty, proxy: TcpProxy) -> None:
    [job] = await duty.submit("ONCE")
    proxy.lose_the_answer_to("claim_jobs")
    async with local_shift(duty, local_store(proxy.url), until_empty=True, queues=["work"]) as local:
        assert (await local.ended()).claimed == 0
    waiting = await duty.get(job)
    assert (waiting.state, waiting.crash_count) == (JobState.PENDING, 0)


async def test_a_lone_job_whose_claim_has_no_answer_waits_again(duty: Duty, proxy: TcpProxy) -> None:
    [job] = await duty.submit("ONCE")
    proxy.lose_the_answer_to("claim_job(")
    async with local_shift(duty, local_store(proxy.url), queues=(), only=("acme", job)) as local:
        with pytest.raises(StoreUnavailable):
            await local.ended()
    waiting = await duty.get(job)
    assert (waiting.state, waiting.claim_count, waiting.crash_count) == (JobState.PENDING, 1, 0)


async def test_an_outcome_whose_answer_was_lost_is_written_once(duty: Duty, proxy: TcpProxy) -> None:
    async with local_shift(duty, local_store(proxy.url)):
        proxy.lose_the_answer_to("finish_jobs")
        [job] = await duty.submit("ONCE")
        await eventually(lambda: proxy.lost_answers == 1)
        await duty.until([job], "SUCCEEDED")
    assert duty.events("jobs.job.late_result") == []
    assert duty.traces() == {job: 1}


async def test_without_listen_polling_goes_on(duty: Duty, proxy: TcpProxy) -> None:
    proxy.swallow("LISTEN durable_jobs")
    async with local_shift(duty, local_store(proxy.url)):
        [job] = await duty.submit("ONCE")
        await duty.until([job], "SUCCEEDED")


async def test_a_lost_listen_is_taken_up_again(duty: Duty, proxy: TcpProxy) -> None:
    async with local_shift(duty, local_store(proxy.url), settings={"poll_interval": NEVER}) as local:
        await eventually(lambda: _is_idle(duty, local.executor_id))
        proxy.reset()
        [job] = await duty.submit("ONCE")
        await duty.until([job], "SUCCEEDED")
        await eventually(lambda: _is_idle(duty, local.executor_id))
        [woken] = await duty.submit("ONCE")
        await duty.until([woken], "SUCCEEDED")


def _is_idle(duty: Duty, executor_id: object) -> bool:
    row = duty.owner.execute("SELECT idle FROM job_executors WHERE executor_id = %s", [executor_id])
    return bool((row.fetchone() or [False])[0])


async def test_orp_2_a_slow_database_does_not_take_a_healthy_job_for_dead(
    duty: Duty, proxy: TcpProxy
) -> None:
    store = local_store(proxy.url, timeout=timedelta(seconds=10))
    duty.settings = duty.settings.model_copy(update={"running_stale_after": 2 * STALE})
    async with local_shift(duty, store, settings={"running_stale_after": 2 * STALE}):
        proxy.slow_down(timedelta(milliseconds=500))
        [job] = await duty.submit("ONCE", seconds=6 * STALE.total_seconds())
        reconciling = asyncio.create_task(duty.reconcile_on())
        await duty.until([job], "SUCCEEDED", 2 * LONG)
        reconciling.cancel()
        await asyncio.gather(reconciling, return_exceptions=True)
        proxy.restore()
    assert duty.traces() == {job: 1}
    assert duty.events("jobs.job.stalled") == []


async def test_told_to_stop_while_the_database_is_away_a_shift_ends(duty: Duty, proxy: TcpProxy) -> None:
    async with local_shift(duty, local_store(proxy.url)) as local:
        [job] = await duty.submit("REPLAY", seconds=60)
        await eventually(lambda: duty.traces()[job])
        proxy.cut()
        local.shift.leave("told to stop", Stop.SHUTDOWN)
        await local.ended()
    await eventually(lambda: duty.store.silent_executors(stale_after=STALE), LONG)
    await duty.reconcile_until_clear()
    assert duty.states([job]) == {"PENDING": 1}
