"""Workers that load different modules: none executes, fails or takes over what it does not know."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest

from durable_jobs.executor import served
from durable_jobs.reconciling import Reconciler
from durable_jobs.registry import Registry
from durable_jobs.states import JobState
from tests.integration.executor.local import LocalShift, local_shift, local_store
from tests.integration.executor.shifts import LONG, STALE, Duty
from tests.support.eventually import eventually
from tests.support.jobs import enter


def knowing(duty: Duty, *names: str) -> Registry:
    """Return the registry of a program that declares all queues and some types."""
    return Registry.of([duty.registry.job_types[name] for name in names], duty.registry.queues.values())


def executed_by(duty: Duty, job: UUID) -> UUID:
    row = duty.owner.execute("SELECT executor_id FROM job_history WHERE job_id = %s", [job]).fetchone()
    assert row is not None
    return UUID(str(row[0]))


def types_of(duty: Duty, local: LocalShift) -> list[str]:
    return list((duty.view(local.executor_id) or {}).get("job_types") or [])


async def test_a_job_whose_type_is_not_declared_is_given_back_once_and_waits_for_a_worker_that_knows_it(
    duty: Duty, database_url: str
) -> None:
    [unknown] = await duty.submit("ONCE")
    async with local_shift(duty, local_store(database_url), registry=knowing(duty, "REPLAY")) as local:
        await eventually(lambda: local.shift.summary.undeclared["ONCE"] == 1, LONG)
        [known, later] = [*await duty.submit("REPLAY"), *await duty.submit("ONCE")]
        await duty.until([known], "SUCCEEDED")
        waiting = [await duty.get(unknown), await duty.get(later)]
        assert [(job.state, job.claim_count, job.crash_count) for job in waiting] == [
            (JobState.PENDING, 1, 0),
            (JobState.PENDING, 0, 0),
        ]
        async with local_shift(duty, local_store(database_url)):
            await duty.until([unknown, later], "SUCCEEDED")
            assert (await local.ended()).ended_because == "relieved"
    assert duty.traces() == {unknown: 1, later: 1, known: 1}
    assert duty.counters_equal_the_table()


async def test_a_job_that_runs_alone_is_given_back_by_a_worker_that_does_not_know_it(
    duty: Duty, database_url: str
) -> None:
    [job] = await duty.submit("ONCE")
    alone = {"queues": (), "only": ("acme", job)}
    async with local_shift(duty, local_store(database_url), registry=knowing(duty), **alone) as local:
        assert (await local.ended()).undeclared["ONCE"] == 1
    assert (await duty.get(job)).state is JobState.PENDING
    async with local_shift(duty, local_store(database_url), **alone) as local:
        await local.ended()
    assert (await duty.get(job)).state is JobState.SUCCEEDED


async def test_a_shift_stays_on_duty_for_what_its_successor_does_not_know(
    duty: Duty, database_url: str
) -> None:
    a, b = knowing(duty, "ONCE", "NARROW"), knowing(duty, "NARROW", "BOUNDED")
    async with (
        local_shift(duty, local_store(database_url), registry=a) as first,
        local_shift(duty, local_store(database_url), registry=b) as second,
    ):
        await eventually(lambda: types_of(duty, first) == ["ONCE"], LONG)
        assert (duty.view(first.executor_id) or {})["queues"] == ["work"]
        once, narrow, bounded = [await duty.submit(name, 5) for name in ("ONCE", "NARROW", "BOUNDED")]
        await duty.until([*once, *narrow, *bounded], "SUCCEEDED")
        assert {executed_by(duty, job) for job in once} == {first.executor_id}
        assert {executed_by(duty, job) for job in [*narrow, *bounded]} == {second.executor_id}
        # What it let go is its successor's alone.
        await eventually(lambda: second.shift._bounds.held["bounded"] == 4, LONG)
        async with local_shift(duty, local_store(database_url)):
            assert (await first.ended()).ended_because == "relieved"
            assert (await second.ended()).ended_because == "relieved"


async def test_a_shift_that_stayed_ends_when_nothing_comes(
    duty: Duty, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "KEPT_FOR", timedelta(seconds=0))
    a, b = knowing(duty, "ONCE", "NARROW"), knowing(duty, "NARROW")
    async with (
        local_shift(duty, local_store(database_url), registry=a) as first,
        local_shift(duty, local_store(database_url), registry=b) as second,
    ):
        assert (await first.ended()).ended_because == "relieved"
        assert not second.task.done()


async def test_an_orphan_of_an_undeclared_type_is_left_to_a_pass_that_knows_it(duty: Duty) -> None:
    dead = await enter(duty.store, "work")
    [job] = await duty.submit("REPLAY")
    assert len((await duty.store.claim(dead, "work", 1)).jobs) == 1
    await eventually(lambda: duty.store.silent_executors(stale_after=STALE), LONG)
    elsewhere = Reconciler(duty.store, knowing(duty, "ONCE"), duty.settings)
    assert (await elsewhere.run()).settled == {}
    assert (await duty.get(job)).state is JobState.RUNNING
    await duty.reconcile()
    assert (await duty.get(job)).state is JobState.PENDING


async def test_an_orphan_whose_type_nobody_declares_fails_after_a_while(duty: Duty) -> None:
    dead = await enter(duty.store, "work")
    [job] = await duty.submit("REPLAY")
    assert len((await duty.store.claim(dead, "work", 1)).jobs) == 1
    duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 day'")
    await Reconciler(duty.store, knowing(duty, "ONCE"), duty.settings).run()
    assert ((await duty.get(job)).state, (await duty.get(job)).failed_reason) == (JobState.FAILED, "stalled")
