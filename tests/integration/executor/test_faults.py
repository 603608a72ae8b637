"""Faults at the worst moment: a killed pass, a restarted database, a frozen shift, a race of cancel and end."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from durable_jobs.embedded import PostgresCluster
from durable_jobs.errors import NotAllowed, StoreUnavailable
from durable_jobs.executor.execution import Execution, Stop
from durable_jobs.jobs import ClaimedJob, Job
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import Decision, Unwritten
from durable_jobs.tenants import job_tenant_scope
from tests.integration.executor.local import local_shift, local_store
from tests.integration.executor.shifts import LONG, STALE, Duty
from tests.support.cluster import SETTINGS
from tests.support.eventually import eventually
from tests.support.jobs import enter, succeeded
from tests.support.stores import open_store

NEVER = timedelta(hours=1)


async def claimed(
    duty: Duty, name: str, count: int = 1, *, tenant: str = "acme", **data: Any
) -> list[ClaimedJob]:
    """Have jobs claimed by an executor that does nothing with them and never beats."""
    dead = await enter(duty.store, "work")
    ids = set(await duty.submit(name, count, tenant=tenant, **data))
    got: list[ClaimedJob] = []
    while some := (await duty.store.claim(dead, "work", 250)).jobs:
        got += some
    assert {job.job_id for job in got} == ids
    return got


async def silent(duty: Duty) -> Any:
    duty.owner.execute("UPDATE job_executors SET last_seen_at = now() - interval '1 day'")
    return await duty.store.silent_executors(stale_after=STALE)


@contextmanager
def hindered(duty: Duty) -> Iterator[None]:
    """Make every change of a job slow, and every change of tenant b's jobs fail."""
    duty.owner.execute(
        "CREATE OR REPLACE FUNCTION hinder() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF OLD.tenant_id = 'b' THEN RAISE EXCEPTION 'nothing of this tenant can be written'; END IF;"
        " PERFORM pg_sleep(0.005); RETURN NEW; END $$"
    )
    duty.owner.execute(
        "CREATE TRIGGER hinder BEFORE UPDATE ON job_history FOR EACH ROW EXECUTE FUNCTION hinder()"
    )
    try:
        yield
    finally:
        duty.owner.execute("DROP TRIGGER hinder ON job_history")


async def test_a_pass_that_is_killed_in_the_middle_leaves_the_rest_to_the_next(duty: Duty) -> None:
    jobs = [
        job
        for tenant, count in (("a", 83), ("b", 83), ("c", 84))
        for job in await claimed(duty, "ONCE", count, tenant=tenant)
    ]
    ids = [job.job_id for job in jobs]
    await silent(duty)
    with hindered(duty):
        one_pass = duty.start_pass()
        await eventually(lambda: duty.states(ids)["FAILED"] >= 20, LONG, every=timedelta(milliseconds=5))
        one_pass.kill()
        assert duty.states(ids)["RUNNING"] > 83
        await eventually(lambda: nothing_is_locked(duty), LONG)
        report = await duty.reconcile()
        assert list(report.faults) == ["b"]
        assert duty.states(ids) == {"FAILED": 167, "RUNNING": 83}
    await duty.reconcile_until_clear()
    assert duty.states(ids) == {"FAILED": 250}
    assert Counter(event["job_id"] for event in duty.events("jobs.job.stalled")) == dict.fromkeys(ids, 1)


def nothing_is_locked(duty: Duty) -> bool:
    row = duty.owner.execute(
        "SELECT count(*) FROM pg_locks WHERE relation = 'job_history'::regclass AND pid <> pg_backend_pid()"
        " AND mode <> 'AccessShareLock' AND mode <> 'ShareUpdateExclusiveLock'"
    ).fetchone()
    return row == (0,)


@pytest.fixture
async def own_duty(tmp_path: Path) -> AsyncIterator[tuple[Duty, PostgresCluster]]:
    """A duty on a Postgres of its own, which the test may restart."""
    tmp_path.chmod(0o711)
    tmp_path.parent.chmod(0o711)
    tmp_path.parent.parent.chmod(0o711)
    cluster = PostgresCluster(tmp_path / "postgres", settings=SETTINGS)
    with cluster:
        cluster.create_database("jobs")
        admin = cluster.admin_url("jobs")
        migrate(admin)
        url = provision(admin, "pw")
        async with open_store(url) as store:
            with psycopg.connect(admin, autocommit=True) as owner:
                duty = Duty(store, url, owner, tmp_path)
                try:
                    yield duty, cluster
                finally:
                    duty.close()
                    duty.owner.close()
    cluster.remove()


async def test_a_postgres_that_restarts_while_jobs_run_gets_their_outcomes_late_and_once(
    own_duty: tuple[Duty, PostgresCluster], tmp_path: Path
) -> None:
    duty, cluster = own_duty
    lines = tmp_path / "lines"
    shift = await duty.start()
    jobs = await duty.submit("LINE", 5, seconds=1, text=str(lines))
    await eventually(lambda: told(lines, "began") == dict.fromkeys(map(str, jobs), 1), LONG)
    await asyncio.to_thread(cluster.stop)
    await eventually(lambda: told(lines, "ended") == dict.fromkeys(map(str, jobs), 1), LONG)
    await asyncio.to_thread(cluster.start)
    duty.owner = psycopg.connect(cluster.admin_url("jobs"), autocommit=True)
    await duty.until(jobs, "SUCCEEDED")
    await eventually(lambda: answers(duty.store), LONG)
    later = await duty.submit("LINE", 3, text=str(lines))
    await duty.until(later, "SUCCEEDED")
    assert shift.is_running
    assert told(lines, "began") == dict.fromkeys(map(str, [*jobs, *later]), 1)
    assert {(await duty.get(job)).claim_count for job in [*jobs, *later]} == {1}


async def answers(store: PgJobsStore) -> bool:
    with suppress(StoreUnavailable):
        return bool(await store.now())
    return False


def told(lines: Path, word: str) -> Counter[str]:
    written = lines.read_text().splitlines() if lines.exists() else []
    return Counter(line.split()[1] for line in written if line.startswith(word))


async def test_the_late_result_of_a_frozen_shift_changes_nothing_and_is_recorded(duty: Duty) -> None:
    frozen = await duty.start()
    [job] = await duty.submit("NAP", seconds=1, text="late")
    await eventually(lambda: duty.traces()[job], LONG)
    frozen.send(signal.SIGSTOP)
    await duty.reconcile_until_clear()
    alone = await duty.start(queues=[], only=["acme", str(job)])
    await alone.ended()
    done = await duty.get(job)
    assert done.state is JobState.SUCCEEDED
    frozen.send(signal.SIGCONT)
    await frozen.ended()
    assert await duty.get(job) == done
    assert duty.traces() == {job: 2}
    [late] = duty.events("jobs.job.late_result")
    assert (late["job_id"], late["payload"]["outcome"]) == (job, "SUCCEEDED")


async def test_a_cancel_between_the_reconcilers_look_and_its_write_wins(duty: Duty) -> None:
    [job] = await claimed(duty, "REPLAY")
    dead = await silent(duty)
    with job_tenant_scope("acme"):
        await duty.store.cancel(job.job_id)
    await duty.store.settle_orphans("acme", dead, lambda _: Decision(replay=True), max_crashes=3)
    assert duty.states([job.job_id]) == {"CANCELLED": 1}


@pytest.mark.parametrize("end", ["finish", "release"])
async def test_what_ends_while_the_reconciler_decides_comes_too_late(duty: Duty, end: str) -> None:
    [job] = await claimed(duty, "REPLAY")
    dead = await silent(duty)
    under_way: list[asyncio.Task[Any]] = []

    def decide(orphan: Job) -> Decision:
        work = (
            duty.store.finish([succeeded(job)])
            if end == "finish"
            else duty.store.release([(job, False)], "end")
        )
        under_way.append(asyncio.create_task(work))
        return Decision(replay=True)

    settled = await duty.store.settle_orphans("acme", dead, decide, max_crashes=3)
    assert settled == {job.job_id: JobState.PENDING}
    answer = await under_way[0]
    assert answer == ([Unwritten(job.job_id, "late")] if end == "finish" else None)
    assert duty.states([job.job_id]) == {"PENDING": 1}
    assert len(duty.events("jobs.job.late_result")) == (end == "finish")


async def test_a_beat_after_the_second_look_keeps_the_executor(duty: Duty) -> None:
    [job] = await claimed(duty, "REPLAY")
    [executor] = await silent(duty)
    assert await duty.store.beat(executor)
    assert await duty.store.remove_executors([executor], stale_after=STALE) == []
    await duty.store.finish([succeeded(job)])
    assert duty.states([job.job_id]) == {"SUCCEEDED": 1}


async def test_a_thousand_cancels_at_the_instant_of_completion_agree_with_the_end(duty: Duty) -> None:
    jobs = await claimed(duty, "ONCE", 1_000)
    at_once = asyncio.Semaphore(5)
    states: Counter[tuple[JobState | None, JobState]] = Counter()

    async def cancel(job: ClaimedJob) -> JobState | None:
        try:
            return (await duty.store.cancel(job.job_id)).state
        except NotAllowed:
            return None

    async def race(n: int, job: ClaimedJob) -> None:
        async with at_once:
            two = [cancel(job), duty.store.finish([succeeded(job)])]
            # Each is first as often as the other.
            answers = await asyncio.gather(*(two if n % 2 else reversed(two)))
            assert [] in answers
            answer = answers[0] if n % 2 else answers[1]
            states[answer, (await duty.store.get(job.job_id)).state] += 1

    with job_tenant_scope("acme"):
        await asyncio.gather(*(race(n, job) for n, job in enumerate(jobs)))
    # An executor that has its outcome already writes it; the answer told that the job was still running, or over.
    assert states.keys() <= {(JobState.RUNNING, JobState.SUCCEEDED), (None, JobState.SUCCEEDED)}
    assert states.total() == 1_000
    assert duty.states([job.job_id for job in jobs]) == {"SUCCEEDED": 1_000}
    assert duty.counters_equal_the_table()


async def test_a_job_that_is_stopped_before_its_first_step_takes_none(duty: Duty) -> None:
    [job] = await claimed(duty, "ONCE")
    execution = Execution(job, duty.registry.job_types["ONCE"], duty.store)
    run = execution.run(lambda *_: None, show=None, max_result_bytes=1_000)
    task = asyncio.create_task(run)
    execution.stop(Stop.CANCEL)
    outcome = await task
    assert outcome is not None
    assert outcome.state is JobState.CANCELLED
    assert duty.traces() == {}


async def test_a_job_that_comes_between_the_last_look_and_the_sleep_is_not_slept_through(
    duty: Duty, database_url: str
) -> None:
    came: list[Any] = []

    class Late(PgJobsStore):
        async def set_idle(self, executor_id: Any, idle: bool) -> None:
            if idle and not came:
                # Nobody is idle as far as the store knows, so nobody is woken.
                came.extend(await duty.submit("ONCE"))
            await super().set_idle(executor_id, idle)

    settings = {"poll_interval": NEVER}
    async with local_shift(duty, local_store(database_url, Late), settings=settings):
        await eventually(lambda: came, LONG)
        await duty.until(came, "SUCCEEDED")
