"""What goes on inside a shift: answers that cross each other, code that does not stop, faults of helpers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor import outcomes, overseeing
from durable_jobs.executor.execution import Stop
from durable_jobs.jobs import ClaimedJob
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Executor, QueueUse
from durable_jobs.tenants import job_tenant_scope
from tests.integration.executor import job_types
from tests.integration.executor.local import HeldAnswers, local_shift, local_store
from tests.integration.executor.shifts import LONG, STALE, Duty
from tests.support.eventually import eventually
from tests.support.jobs import enter

NEVER = timedelta(hours=1)


def held_store(duty: Duty, url: str) -> HeldAnswers:
    store = local_store(url, HeldAnswers)
    assert isinstance(store, HeldAnswers)
    return store


async def test_a_job_claimed_while_the_audit_waits_for_its_answer_is_not_given_up(
    duty: Duty, database_url: str
) -> None:
    store = held_store(duty, database_url)
    async with local_shift(duty, store):
        store.hold["held"] = asyncio.Event()
        seen = store.answered.get("held", 0)
        await eventually(lambda: store.answered.get("held", 0) > seen)
        [job] = await duty.submit("ONCE", seconds=0.5)
        await eventually(lambda: duty.traces()[job])
        store.hold.pop("held").set()
        await duty.until([job], "SUCCEEDED")
    assert duty.traces() == {job: 1}


async def test_a_claim_whose_answer_is_on_its_way_is_not_given_back(duty: Duty, database_url: str) -> None:
    store = held_store(duty, database_url)
    async with local_shift(duty, store, settings={"database_timeout": timedelta(seconds=10)}):
        store.hold["claim"] = asyncio.Event()
        [job] = await duty.submit("ONCE")
        await eventually(lambda: store.answered.get("claim"))
        seen = store.answered.get("held", 0)
        await eventually(lambda: store.answered.get("held", 0) >= seen + 3)
        store.hold.pop("claim").set()
        await duty.until([job], "SUCCEEDED")
    assert (await duty.get(job)).claim_count == 1
    assert duty.traces() == {job: 1}


async def test_an_end_that_is_on_its_way_to_us_is_no_reason_to_end_the_process(
    duty: Duty, database_url: str
) -> None:
    store = held_store(duty, database_url)
    async with local_shift(duty, store) as local:
        store.hold["finish"] = asyncio.Event()
        jobs = await duty.submit("ONCE", 2)
        await eventually(lambda: store.answered.get("finish"))
        [long] = await duty.submit("ONCE", seconds=60)
        await eventually(lambda: duty.traces()[long])
        assert duty.states(jobs)["SUCCEEDED"] >= 1
        heart = store.heart(local.executor_id)
        unfinished = local.shift._overseer.unfinished()
        assert len(unfinished) == 1
        assert not await asyncio.to_thread(heart.must_stop, unfinished)
        with job_tenant_scope("acme"):
            await duty.store.cancel(long)
        assert await asyncio.to_thread(heart.must_stop, unfinished)
        heart.close()
        store.hold.pop("finish").set()


async def test_code_that_does_not_stop_does_not_keep_a_shift_whose_job_was_given_up(
    duty: Duty, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overseeing, "STOP_GRACE_S", 0.2)
    job_types.LET_GO.clear()
    try:
        async with local_shift(duty, local_store(database_url)) as local:
            [job] = await duty.submit("DEAF")
            await eventually(lambda: duty.traces()[job])
            duty.owner.execute(
                "UPDATE job_history SET state = 'FAILED', failed_reason = 'x', completed_at = now()"
                " WHERE job_id = %s",
                [job],
            )
            assert "cannot be interrupted" in (await local.ended()).ended_because
    finally:
        job_types.LET_GO.set()


async def test_a_fault_of_the_shift_stops_its_jobs_and_gives_them_back(duty: Duty, database_url: str) -> None:
    class Broken(HeldAnswers):
        broken = False

        async def claim(self, *args: Any, **kwargs: Any) -> Any:
            if self.broken:
                raise RuntimeError("a fault of ours")
            return await super().claim(*args, **kwargs)

    store = local_store(database_url, Broken)
    async with local_shift(duty, store) as local:
        [job] = await duty.submit("REPLAY", seconds=1)
        await eventually(lambda: duty.traces()[job])
        store.broken = True  # type: ignore[attr-defined]
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await local.ended()
        assert (await duty.get(job)).state is JobState.PENDING
        assert await duty.store.executors() == []
        assert all(e.task is None or e.task.done() for e in local.shift._running.values())
    assert duty.traces("ended") == {}


async def test_cancelled_twice_a_shift_gives_its_jobs_back(duty: Duty, database_url: str) -> None:
    async with local_shift(duty, local_store(database_url)) as local:
        [job] = await duty.submit("REPLAY", seconds=60)
        await eventually(lambda: duty.traces()[job])
        local.task.cancel()
        await asyncio.sleep(0)
        local.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await local.task
        await duty.until([job], "PENDING")
    assert (await duty.get(job)).crash_count == 0


async def test_that_it_claims_no_more_is_told_until_the_store_knows(duty: Duty, database_url: str) -> None:
    class Away(HeldAnswers):
        failures = 2

        async def set_draining(self, executor_id: Any) -> None:
            if self.failures:
                self.failures -= 1
                raise StoreUnavailable("away")
            await super().set_draining(executor_id)

    async with local_shift(duty, local_store(database_url, Away)) as local:
        [job] = await duty.submit("ONCE", seconds=60)
        await eventually(lambda: duty.traces()[job])
        local.shift.leave("relieved")
        await eventually(lambda: (duty.view(local.executor_id) or {}).get("draining"))
        assert not local.task.done()


async def test_two_renewals_of_the_leases_do_not_overlap(duty: Duty, database_url: str) -> None:
    store = held_store(duty, database_url)
    async with local_shift(duty, store, settings={"heartbeat_interval": NEVER}) as local:
        await eventually(lambda: local.shift._bounds.held["bounded"] == 4)
        store.hold["lease"] = asyncio.Event()
        seen = store.answered["lease"]
        two = [asyncio.create_task(local.shift._duty.lease()) for _ in range(2)]
        await eventually(lambda: store.answered["lease"] > seen)
        for _ in range(20):
            await asyncio.sleep(0)
        assert store.answered["lease"] == seen + 1
        assert local.shift._bounds.free("bounded") == 0
        store.hold.pop("lease").set()
        await asyncio.gather(*two)
        await eventually(lambda: local.shift._bounds.free("bounded") == 4)


async def test_a_shift_that_was_given_up_ends_although_its_heart_has_not_noticed(
    duty: Duty, database_url: str
) -> None:
    async with local_shift(duty, local_store(database_url), settings={"heartbeat_interval": NEVER}) as local:
        await eventually(lambda: duty.view(local.executor_id))
        duty.owner.execute("DELETE FROM job_executors")
        assert "given this shift up" in (await local.ended()).ended_because


async def test_a_shift_that_was_given_up_claims_nothing(duty: Duty) -> None:
    dead = await enter(duty.store, "work")
    await duty.store.leave_executor(dead)
    [job] = await duty.submit("ONCE")
    assert (await duty.store.claim(dead, "work", 1)).jobs == []
    assert await duty.store.claim_job(dead, "acme", job) is None


async def test_an_outcome_that_cannot_be_written_waits_and_stops_nobody(
    duty: Duty, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcomes, "REFUSED_PAUSE_S", 0.2)
    duty.owner.execute(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'this row cannot be written'; END $$"
    )
    async with local_shift(duty, local_store(database_url)):
        bad, *others = await duty.submit("ONCE", 4, seconds=0.2)
        await eventually(lambda: len(duty.traces()) == 4)
        duty.owner.execute(
            f"CREATE TRIGGER refuse BEFORE UPDATE ON job_history FOR EACH ROW WHEN (OLD.job_id = '{bad}')"
            " EXECUTE FUNCTION refuse()"
        )
        try:
            await duty.until(others, "SUCCEEDED")
            others = await duty.submit("ONCE", 3)
            await duty.until(others, "SUCCEEDED")
            assert duty.states([bad]) == {"RUNNING": 1}
        finally:
            duty.owner.execute("DROP TRIGGER refuse ON job_history")
        await duty.until([bad], "SUCCEEDED")
    assert set(duty.traces().values()) == {1}


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_fault_in_showing_a_job_is_not_the_jobs(duty: Duty, database_url: str, when: str) -> None:
    async def show(job: ClaimedJob, execute: Any) -> None:
        if when == "after":
            await execute(None, None)
        raise ConnectionError("Prefect is away")

    duty.registry.job_types["ONCE"] = _shown(duty, "ONCE")
    async with local_shift(duty, local_store(database_url), show=show):
        [job] = await duty.submit("ONCE", text="done")
        await duty.until([job], "SUCCEEDED")
    assert (await duty.get(job)).result == {"status": "OK", "value": "done"}
    assert duty.traces() == {job: 1}


async def test_what_a_shown_job_raises_is_its_reason(duty: Duty, database_url: str) -> None:
    async def show(job: ClaimedJob, execute: Any) -> None:
        try:
            await execute(None, None)
        except Exception as error:
            raise ConnectionError("Prefect is away") from error

    duty.registry.job_types["RAISES"] = _shown(duty, "RAISES")
    async with local_shift(duty, local_store(database_url), show=show):
        [job] = await duty.submit("RAISES", text="nul")
        await duty.until([job], "FAILED")
    assert ((await duty.get(job)).failed_reason or "").startswith("ValueError: before")


def _shown(duty: Duty, name: str) -> Any:
    import dataclasses

    return dataclasses.replace(duty.registry.job_types[name], visibility="task_run")


async def test_memory_that_runs_out_fails_the_job_and_its_neighbour_goes_on(duty: Duty) -> None:
    shift = await duty.start()
    [neighbour] = await duty.submit("ONCE", seconds=1)
    [job] = await duty.submit("MEMORY")
    await duty.until([job], "FAILED")
    assert ((await duty.get(job)).failed_reason or "").startswith("MemoryError")
    await duty.until([neighbour], "SUCCEEDED")
    assert shift.is_running


async def test_the_late_result_of_a_job_that_was_settled_is_recorded(duty: Duty, database_url: str) -> None:
    async with local_shift(duty, local_store(database_url), settings={"heartbeat_interval": NEVER}) as local:
        [job] = await duty.submit("STUBBORN", seconds=60)
        await eventually(lambda: duty.traces()[job])
        duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 day'")
        await duty.reconcile_until_clear()
        settled = await duty.get(job)
        assert settled.failed_reason == "stalled"
        await local.ended()
    assert await duty.get(job) == settled
    [event] = duty.events("jobs.job.late_result")
    assert event["job_id"] == job
    assert event["payload"]["outcome"] == "SUCCEEDED"


async def test_a_worker_under_the_same_name_and_pid_does_not_keep_the_dead_ones_jobs(
    duty: Duty, database_url: str
) -> None:
    async with local_shift(duty, local_store(database_url), queues=["narrow"]) as local:
        alive = local.shift.executor
        dead = Executor(await enter(duty.store), alive.host, alive.pid, ("work",))
        duty.owner.execute(
            "UPDATE job_executors SET host = %s, pid = %s, last_seen_at = now() - interval '1 day'"
            " WHERE executor_id = %s",
            [alive.host, alive.pid, dead.executor_id],
        )
        [job] = await duty.submit("ONCE")
        assert len((await duty.store.claim(dead.executor_id, "work", 1)).jobs) == 1
        await duty.reconcile_until_clear()
        assert (await duty.get(job)).failed_reason == "stalled"
        assert not local.task.done()


@pytest.mark.parametrize(("kind", "name"), [("queue", "work"), ("type", "ONCE")])
async def test_what_is_paused_waits_and_goes_on(duty: Duty, database_url: str, kind: str, name: str) -> None:
    await duty.store.pause(kind, name, by="a test")
    jobs = await duty.submit("ONCE", 3)
    async with local_shift(duty, local_store(database_url), until_empty=True) as quick:
        assert (await quick.ended()).claimed == 0
    async with local_shift(duty, local_store(database_url)) as local:
        [other] = await duty.submit("NARROW")
        await duty.until([other], "SUCCEEDED")
        await duty.reconcile()
        assert duty.states(jobs) == {"PENDING": 3}
        await duty.store.resume(kind, name)
        await duty.until(jobs, "SUCCEEDED")
        assert local.shift.summary.count(JobState.FAILED) == 0


async def test_until_empty_ends_while_another_shift_works(duty: Duty, database_url: str) -> None:
    async with local_shift(duty, local_store(database_url)) as local:
        jobs = await duty.submit("ONCE", 2, seconds=60)
        await eventually(lambda: len(duty.traces()) == 2)
        async with local_shift(duty, local_store(database_url), until_empty=True) as quick:
            assert (await quick.ended()).ended_because == "nothing is due"
        assert duty.states(jobs) == {"RUNNING": 2}
        assert not local.task.done()


async def test_until_empty_ends_although_others_hold_the_places_of_an_empty_queue(
    duty: Duty, database_url: str
) -> None:
    dead = await enter(duty.store, "narrow")
    held = await duty.store.lease_queues(dead, [QueueUse("narrow", 1, 0)], stale_after=NEVER)
    assert held == {"narrow": 1}
    async with local_shift(duty, local_store(database_url), until_empty=True, queues=["narrow"]) as quick:
        assert (await quick.ended()).ended_because == "nothing is due"


async def test_a_crew_of_two_is_relieved_by_the_third(duty: Duty, database_url: str) -> None:
    crew = {"crew": 2}
    async with (
        local_shift(duty, local_store(database_url), settings=crew) as first,
        local_shift(duty, local_store(database_url), settings=crew) as second,
    ):
        jobs = await duty.submit("BOUNDED", 8, seconds=0.1)
        await duty.until(jobs, "SUCCEEDED")
        assert not first.task.done()
        async with local_shift(duty, local_store(database_url), settings=crew) as third:
            assert (await first.ended()).ended_because == "relieved"
            jobs = await duty.submit("BOUNDED", 8, seconds=0.1)
            await duty.until(jobs, "SUCCEEDED")
            assert not second.task.done()
            assert not third.task.done()
            assert sum(v.executor.in_crew and not v.draining for v in await duty.store.executors()) == 2


async def test_a_shift_for_some_queues_relieves_nobody(duty: Duty, database_url: str) -> None:
    async with local_shift(duty, local_store(database_url)) as whole:
        async with local_shift(duty, local_store(database_url), queues=["narrow"]) as some:
            jobs = [*await duty.submit("NARROW", 2), *await duty.submit("ONCE", 2)]
            await duty.until(jobs, "SUCCEEDED", LONG)
            some.shift.leave("told to stop", Stop.SHUTDOWN)
            await some.ended()
        assert not whole.task.done()


async def test_the_reconciler_and_a_restarted_database_in_the_middle(duty: Duty) -> None:
    ids = await _orphans(duty)
    reconciling = asyncio.create_task(duty.reconcile())
    await eventually(lambda: duty.states(ids)["FAILED"] >= 20, every=timedelta(milliseconds=1))
    duty.owner.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'durable-jobs'"
    )
    with pytest.raises(StoreUnavailable):
        await reconciling
    assert 0 < duty.states(ids)["RUNNING"] < 250
    await duty.reconcile_until_clear()
    assert duty.states(ids) == {"FAILED": 250}
    assert len(duty.events("jobs.job.stalled")) == 250


async def test_a_tenant_that_fails_on_every_write_stops_no_other(duty: Duty) -> None:
    ids = await _orphans(duty)
    late = "UPDATE job_history SET deadline_at = now() - interval '1 day' WHERE state = 'RUNNING'"
    duty.owner.execute(late)
    alive = await enter(duty.store, "narrow")
    overdue = {tenant: (await duty.submit("NARROW", tenant=tenant))[0] for tenant in ("b", "c")}
    assert len((await duty.store.claim(alive, "narrow", 4)).jobs) == 2
    duty.owner.execute(late)
    duty.owner.execute(
        "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION 'nothing of this tenant can be written'; END $$"
    )
    duty.owner.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON job_history FOR EACH ROW WHEN (OLD.tenant_id = 'b')"
        " EXECUTE FUNCTION refuse()"
    )
    try:
        report = await duty.reconcile()
    finally:
        duty.owner.execute("DROP TRIGGER refuse ON job_history")
    assert list(report.faults) == ["b"]
    assert duty.states(ids) == {"FAILED": 167, "RUNNING": 83}
    assert duty.states([overdue["c"]]) == {"FAILED": 1}
    await duty.reconcile_until_clear()
    assert duty.states([*ids, *overdue.values()]) == {"FAILED": 252}


async def _orphans(duty: Duty) -> list[Any]:
    """Leave 250 running jobs of three tenants with a dead executor."""
    dead = await enter(duty.store, "work")
    ids: list[Any] = []
    for tenant, count in (("a", 83), ("b", 83), ("c", 84)):
        ids += await duty.submit("ONCE", count, tenant=tenant)
    while (await duty.store.claim(dead, "work", 100)).jobs:
        pass
    duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 day'")
    assert len(await duty.store.silent_executors(stale_after=STALE)) == 1
    return ids
