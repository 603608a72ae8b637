"""What a dead shift leaves is settled exactly once, and a healthy one is never touched."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from uuid import UUID

import pytest

from durable_jobs.reconciling import ReconcileFailed
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Decision
from durable_jobs.tenants import job_tenant_scope
from tests.integration.executor.shifts import LONG, STALE, Duty
from tests.support.eventually import eventually
from tests.support.jobs import enter, new_job


async def test_kill_9_amid_20_jobs_each_ends_as_its_type_says(duty: Duty) -> None:
    shift = await duty.start()
    again = await duty.submit("REPLAY", 10, seconds=60)
    once = await duty.submit("ONCE", 10, seconds=60)
    await eventually(lambda: len(duty.traces()) == 20, LONG)
    shift.kill()
    await duty.reconcile_until_clear()
    assert duty.states(again) == {"PENDING": 10}
    assert duty.states(once) == {"FAILED": 10}
    assert {(await duty.get(i)).failed_reason for i in once} == {"stalled"}
    assert {(await duty.get(i)).crash_count for i in [*again, *once]} == {1}
    assert len(duty.events("jobs.job.stalled")) == 20
    assert await duty.store.executors() == []
    assert duty.counters_equal_the_table()


async def test_err_5_a_worker_crash_fails_the_job_with_reason_and_alert(duty: Duty) -> None:
    shift = await duty.start()
    [job] = await duty.submit("ONCE", seconds=60)
    await eventually(lambda: duty.traces()[job], LONG)
    shift.kill()
    await duty.reconcile_until_clear()
    assert (await duty.get(job)).failed_reason == "stalled"
    [event] = duty.events("jobs.job.stalled")
    assert event["severity"] == "WARNING"
    assert event["job_id"] == job


async def test_suspects_run_alone_and_an_innocent_one_succeeds(duty: Duty) -> None:
    first = await duty.start()
    [job] = await duty.submit("REPLAY", seconds=1)
    await eventually(lambda: duty.traces()[job], LONG)
    first.kill()
    await duty.reconcile_until_clear()
    shared = await duty.start(until_empty=True)
    assert (await shared.ended())["claimed"] == 0
    [lone] = await duty.store.waiting_alone([], stale_after=LONG, limit=5)
    assert lone.job_id == job
    alone = await duty.start(queues=[], only=["acme", str(job)])
    await alone.ended()
    assert duty.states([job]) == {"SUCCEEDED": 1}
    assert duty.traces("ended") == {job: 1}


async def test_a_poison_job_is_given_up_and_takes_one_shift_with_it(duty: Duty) -> None:
    shift = await duty.start()
    neighbours = await duty.submit("REPLAY", 3, seconds=60)
    await eventually(lambda: len(duty.traces()) == 3, LONG)
    [poison] = await duty.submit("POISON")
    await eventually(lambda: not shift.is_running, LONG)
    await duty.reconcile_until_clear()
    for crash in (2, 3):
        alone = await duty.start(queues=[], only=["acme", str(poison)])
        await eventually(lambda alone=alone: not alone.is_running, LONG)
        await duty.reconcile_until_clear()
        assert (await duty.get(poison)).crash_count == crash
    job = await duty.get(poison)
    assert (job.state, job.failed_reason, job.retryable) == (JobState.FAILED, "stalled", False)
    severities = [e["severity"] for e in duty.events("jobs.job.stalled") if e["job_id"] == poison]
    assert severities == ["WARNING", "WARNING", "CRITICAL"]
    assert duty.states(neighbours) == {"PENDING": 3}


@pytest.mark.parametrize("name", ["REPLAY", "THREAD", "CPU_LOOP", "BLOCKED_LOOP"])
async def test_orp_2_a_healthy_long_job_is_never_touched(duty: Duty, name: str) -> None:
    await duty.start()
    [job] = await duty.submit(name, seconds=3 * STALE.total_seconds())
    reconciling = asyncio.create_task(duty.reconcile_on())
    await duty.until([job], "SUCCEEDED")
    reconciling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reconciling
    assert duty.traces() == {job: 1}
    assert duty.events("jobs.job.stalled") == []
    assert (await duty.get(job)).claim_count == 1


async def test_orp_1_forty_jobs_behind_a_bound_of_one_are_not_dead(duty: Duty) -> None:
    reconciling = asyncio.create_task(duty.reconcile_on())
    jobs = await duty.submit("NARROW", 40, seconds=0.1)
    await duty.start()
    await duty.until(jobs, "SUCCEEDED")
    reconciling.cancel()
    assert duty.traces() == dict.fromkeys(jobs, 1)
    assert duty.events("jobs.job.stalled") == []


async def test_orp_8_six_reconcilers_settle_each_orphan_once(duty: Duty) -> None:
    dead = await enter(duty.store, "work")
    with job_tenant_scope("acme"):
        await duty.store.register_idempotent([new_job(job_type="ONCE") for _ in range(1_000)])
    while await _claimed(duty, dead):
        pass
    duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 minute'")
    reports = await asyncio.gather(*(duty.reconcile() for _ in range(6)))
    assert sum(sum(report.settled.values()) for report in reports) == 1_000
    assert len(duty.events("jobs.job.stalled")) == 1_000
    assert duty.owner.execute("SELECT DISTINCT state FROM job_history").fetchall() == [("FAILED",)]


async def _claimed(duty: Duty, executor: UUID) -> int:
    return len((await duty.store.claim(executor, "work", 100)).jobs)


async def test_what_happens_between_reading_and_writing_wins(duty: Duty) -> None:
    dead = await enter(duty.store, "work")
    with job_tenant_scope("acme"):
        await duty.store.register_idempotent([new_job(job_type="ONCE")])
    [job] = (await duty.store.claim(dead, "work", 1)).jobs
    duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 minute'")
    [silent] = await duty.store.silent_executors(stale_after=STALE)
    from tests.support.jobs import succeeded

    await duty.store.finish([succeeded(job)])
    settled = await duty.store.settle_orphans(
        "acme", [silent], lambda _: Decision(replay=False), max_crashes=3
    )
    assert settled == {}
    assert duty.states([job.job_id]) == {"SUCCEEDED": 1}


async def test_an_executor_that_beats_again_is_not_dead(duty: Duty) -> None:
    shift = await duty.start()
    [job] = await duty.submit("REPLAY", seconds=4)
    await eventually(lambda: duty.traces()[job], LONG)
    shift.send(signal.SIGSTOP)
    await eventually(lambda: duty.store.silent_executors(stale_after=STALE), LONG)
    reconciling = asyncio.create_task(duty.reconcile())
    await asyncio.sleep(0)
    shift.send(signal.SIGCONT)
    assert (await reconciling).settled == {}
    await duty.until([job], "SUCCEEDED")
    assert duty.traces() == {job: 1}


async def test_a_frozen_shift_wakes_after_its_jobs_ran_elsewhere(duty: Duty) -> None:
    frozen = await duty.start()
    [job] = await duty.submit("REPLAY", seconds=2)
    await eventually(lambda: duty.traces()[job], LONG)
    frozen.send(signal.SIGSTOP)
    await duty.reconcile_until_clear()
    alone = await duty.start(queues=[], only=["acme", str(job)])
    await alone.ended()
    done = await duty.get(job)
    frozen.send(signal.SIGCONT)
    assert "given this shift up" in (await frozen.ended())["because"]
    assert await duty.get(job) == done
    assert done.state is JobState.SUCCEEDED


async def test_one_row_that_cannot_be_written_stops_nobody(duty: Duty) -> None:
    dead = await enter(duty.store, "work")
    ids: list[UUID] = []
    for tenant in ("a", "b", "c"):
        with job_tenant_scope(tenant):
            done = await duty.store.register_idempotent([new_job(job_type="ONCE") for _ in range(83)])
            ids += [d.job.job_id for d in done]
    while await _claimed(duty, dead):
        pass
    bad = ids[40]
    duty.owner.execute(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'this row cannot be written'; END $$"
    )
    duty.owner.execute(
        f"CREATE TRIGGER refuse BEFORE UPDATE ON job_history FOR EACH ROW WHEN (OLD.job_id = '{bad}')"
        " EXECUTE FUNCTION refuse()"
    )
    try:
        duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 minute'")
        report = await duty.reconcile()
        assert list(report.faults) == ["a"]
        assert "cannot be written" in report.faults["a"]
        assert duty.states(ids) == {"FAILED": 248, "RUNNING": 1}
    finally:
        duty.owner.execute("DROP TRIGGER refuse ON job_history")
    await duty.reconcile()
    assert duty.states(ids) == {"FAILED": 249}
    assert await duty.store.executors() == []


async def test_no_tenant_seen_although_jobs_exist_fails_the_pass(duty: Duty) -> None:
    await duty.submit("ONCE")
    duty.owner.execute("SELECT pg_stat_force_next_flush()")
    await eventually(duty.store.has_rows)
    duty.owner.execute("ALTER POLICY enumerate_tenants ON job_history USING (false)")
    try:
        with pytest.raises(ReconcileFailed, match="no tenant is seen"):
            await duty.reconcile()
    finally:
        duty.owner.execute("ALTER POLICY enumerate_tenants ON job_history USING (true)")
