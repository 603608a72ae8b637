"""How executions and shifts end: failures, results, timeouts, cancels, signals."""

from __future__ import annotations

import asyncio
import signal
from datetime import timedelta

import pytest

from durable_jobs.errors import NotAllowed
from durable_jobs.states import JobState
from durable_jobs.tenants import job_tenant_scope
from tests.integration.executor.shifts import LONG, Duty
from tests.support.eventually import eventually

pytestmark = pytest.mark.timeout(90)


@pytest.mark.parametrize(
    ("text", "reason", "retryable"),
    [
        ("nul", "ValueError: before\N{REPLACEMENT CHARACTER}after", True),
        ("surrogate", "ValueError: before?after", True),
        ("exit", "SystemExit: 3", True),
        ("interrupt", "KeyboardInterrupt", True),
        ("cancelled", "CancelledError: by itself", True),
        ("unreadable", "Unreadable: (its message cannot be read: RuntimeError)", True),
        ("final", "NotRetryable: there is no such document", False),
    ],
)
async def test_t_4_the_reason_of_a_failure_is_readable(
    duty: Duty, text: str, reason: str, retryable: bool
) -> None:
    [job] = await duty.submit("RAISES", text=text)
    await (await duty.start(until_empty=True)).ended()
    failed = await duty.get(job)
    assert (failed.state, failed.failed_reason, failed.retryable) == (JobState.FAILED, reason, retryable)


async def test_t_3_a_failed_job_is_not_retried_by_itself(duty: Duty) -> None:
    [job] = await duty.submit("RAISES", text="exit")
    for _ in range(2):
        await (await duty.start(until_empty=True)).ended()
    failed = await duty.get(job)
    assert (failed.state, failed.claim_count, failed.retry_child_id) == (JobState.FAILED, 1, None)


async def test_a_reason_of_5_mb_is_kept_in_part(duty: Duty) -> None:
    [job] = await duty.submit("RAISES", text="long")
    await (await duty.start(until_empty=True)).ended()
    reason = (await duty.get(job)).failed_reason or ""
    assert len(reason) <= 4_000
    assert reason.endswith("(5,000,012 characters)")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("large", {"status": "OK", "truncated": True}),
        ("nul", {"status": "OK", "value": {"a\N{REPLACEMENT CHARACTER}": ["b\N{REPLACEMENT CHARACTER}"]}}),
        ("nan", {"status": "OK", "value": "nan"}),
        ("surrogate", {"status": "OK", "value": "'\\udcff'"}),
    ],
)
async def test_a_result_that_cannot_be_kept_does_not_fail_the_job(
    duty: Duty, text: str, result: object
) -> None:
    [job] = await duty.submit("RETURNS", text=text)
    await (await duty.start(until_empty=True)).ended()
    done = await duty.get(job)
    assert (done.state, done.result) == (JobState.SUCCEEDED, result)


async def test_progress_is_seen_while_the_job_runs(duty: Duty) -> None:
    await duty.start()
    [job] = await duty.submit("RETURNS", text="nan", seconds=60)

    async def progress() -> object:
        return (await duty.get(job)).progress

    assert await eventually(progress, LONG) == {"current": 1, "total": 2, "message": "half"}


@pytest.mark.parametrize("name", ["SHORT", "DEAF_THREAD"])
async def test_a_job_that_takes_too_long_fails_and_its_neighbour_does_not(duty: Duty, name: str) -> None:
    shift = await duty.start()
    [neighbour] = await duty.submit("ONCE", seconds=3)
    [job] = await duty.submit(name, seconds=40)
    await duty.until([job], "FAILED")
    assert "timed out after" in ((await duty.get(job)).failed_reason or "")
    await duty.until([neighbour], "SUCCEEDED")
    if name == "DEAF_THREAD":
        assert "cannot be interrupted" in (await shift.ended())["because"]


async def test_a_waiting_job_is_cancelled_at_once(duty: Duty) -> None:
    [job] = await duty.submit("ONCE")
    with job_tenant_scope("acme"):
        assert (await duty.store.cancel(job)).state is JobState.CANCELLED
        with pytest.raises(NotAllowed, match="CANCELLED, which is final"):
            await duty.store.cancel(job)
    await (await duty.start(until_empty=True)).ended()
    assert duty.traces() == {}
    assert duty.counters_equal_the_table()


@pytest.mark.parametrize("name", ["ONCE", "THREAD", "STUBBORN"])
async def test_a_running_job_is_cancelled_when_it_stops(duty: Duty, name: str) -> None:
    await duty.start()
    [job] = await duty.submit(name, seconds=60)
    await eventually(lambda: duty.traces()[job], LONG)
    with job_tenant_scope("acme"):
        asked = await duty.store.cancel(job)
    assert asked.state is JobState.RUNNING
    assert asked.cancel_requested_at is not None
    await duty.until([job], "CANCELLED")


async def test_exe_5_a_job_in_an_endless_loop_is_cancelled_and_its_process_ends(duty: Duty) -> None:
    shift = await duty.start()
    [job] = await duty.submit("CPU_LOOP", seconds=600)
    await eventually(lambda: duty.traces()[job], LONG)
    with job_tenant_scope("acme"):
        await duty.store.cancel(job)

    async def settled() -> bool:
        await duty.reconcile()
        return duty.states([job]) == {"CANCELLED": 1} and not shift.is_running

    await eventually(settled, timedelta(seconds=60))


async def test_a_job_of_a_dead_worker_is_cancelled(duty: Duty) -> None:
    shift = await duty.start()
    [job] = await duty.submit("REPLAY", seconds=60)
    await eventually(lambda: duty.traces()[job], LONG)
    shift.kill()
    with job_tenant_scope("acme"):
        await duty.store.cancel(job)
    await duty.reconcile_until_clear()
    assert duty.states([job]) == {"CANCELLED": 1}


async def test_a_cancel_at_the_instant_of_completion_agrees_with_the_end(duty: Duty) -> None:
    await duty.start()
    jobs = await duty.submit("RETURNS", 300, text="nan")

    async def cancel(job_id: object) -> JobState | None:
        with job_tenant_scope("acme"):
            try:
                return (await duty.store.cancel(job_id)).state  # type: ignore[arg-type]
            except NotAllowed:
                return None

    answers = dict(zip(jobs, await asyncio.gather(*(cancel(job) for job in jobs)), strict=True))
    await eventually(lambda: not {"PENDING", "RUNNING"} & duty.states(jobs).keys(), LONG)
    for job_id, answer in answers.items():
        state = (await duty.get(job_id)).state
        if answer is JobState.CANCELLED:
            assert state is JobState.CANCELLED
        elif answer is None:
            assert state is JobState.SUCCEEDED
        else:
            assert state in (JobState.SUCCEEDED, JobState.CANCELLED)
    assert duty.counters_equal_the_table()


async def test_sigterm_releases_what_does_not_end_in_time(duty: Duty) -> None:
    shift = await duty.start()
    quick = await duty.submit("ONCE", 3, seconds=0.3)
    again = await duty.submit("REPLAY", 3, seconds=60)
    once = await duty.submit("ONCE", 3, seconds=60)
    await eventually(lambda: len(duty.traces()) == 9, LONG)
    shift.send(signal.SIGTERM)
    await shift.ended()
    assert duty.states(quick) == {"SUCCEEDED": 3}
    assert duty.states(again) == {"PENDING": 3}
    assert duty.states(once) == {"FAILED": 3}
    assert {(await duty.get(job)).failed_reason for job in once} == {"worker shut down"}
    assert {(await duty.get(job)).crash_count for job in [*again, *once]} == {0}
    assert await duty.store.executors() == []
    await duty.start()
    await eventually(lambda: all(duty.traces()[job] == 2 for job in again), LONG)


async def test_sigterm_claims_nothing_more(duty: Duty) -> None:
    shift = await duty.start()
    await duty.submit("NARROW", 5, seconds=0.4)
    await eventually(lambda: len(duty.traces()) == 1, LONG)
    shift.send(signal.SIGTERM)
    await shift.ended()
    assert len(duty.traces()) == 1


async def test_two_runs_for_one_job_one_executes(duty: Duty) -> None:
    [job] = await duty.submit("REPLAY", seconds=0.5)
    runs = [await duty.start(queues=[], only=["acme", str(job)]) for _ in range(2)]
    because = sorted([(await run.ended())["because"] for run in runs])
    assert because == ["the job is done", "the job was not waiting"]
    assert duty.traces() == {job: 1}
