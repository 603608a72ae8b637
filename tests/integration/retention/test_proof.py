"""A purge that is wrong fails and names what is wrong; two failures in a row are said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable_jobs.errors import PurgeRefused, PurgeUnderWay, RetentionViolated
from durable_jobs.retention import Budget, Periods, look, looking, purge, purge_run, recorded, verify
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import NewEvent
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.history import DAY, add_chain, add_effect, add_event, add_job, add_jobs, job_ids, rows_of
from tests.support.purges import FLOOR, purge_once
from tests.support.stores import open_store

OLD = 31 * DAY
FINISHED = ("jobs.purge.completed", "jobs.retention.violated")


def events(owner: psycopg.Connection) -> list[tuple[str, str]]:
    rows = owner.execute(
        "SELECT event, severity FROM job_events WHERE event = ANY (%s) ORDER BY occurred_at, event_id",
        [list(FINISHED)],
    )
    return [(event, severity) for event, severity in rows]


async def test_what_is_held_by_somebody_else_fails_the_run_and_is_named(
    pg_store: PgJobsStore, owner: psycopg.Connection, admin_url: str
) -> None:
    """A lock is waited for by nobody; the rest goes, and the run says what is left."""
    held, _ = add_job(owner, OLD), add_job(owner, OLD)
    chain = add_chain(owner, [OLD, OLD, OLD])
    with psycopg.connect(admin_url) as other:
        other.execute("SELECT FROM job_history WHERE job_id = ANY (%s) FOR UPDATE", [[held, chain[1]]])
        with pytest.raises(RetentionViolated, match=f"'acme': 4 jobs are due.*{held}") as raised:
            await purge_once(pg_store)
    assert not raised.value.early
    assert job_ids(owner) == {held, *chain}
    assert (await purge_once(pg_store)).purged.total == 4


async def test_a_time_budget_that_is_over_leaves_the_rest_to_the_next_run(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_jobs(owner, 3_000, OLD)
    with pytest.raises(RetentionViolated, match="the time budget was over first; the next run goes on"):
        await purge_once(pg_store, time_budget=timedelta(milliseconds=1))
    assert 0 < rows_of(owner, "job_history") <= 3_000
    assert rows_of(owner, "job_history") == 0 or (await purge_once(pg_store)).purged.total > 0
    assert rows_of(owner, "job_history") == 0


@pytest.fixture
def own(new_database: Callable[[], Urls]) -> Urls:
    """A database whose functions a test may break."""
    return new_database()


# The age is forgotten where jobs are chosen, and where they are locked: two faults that meet.
NO_AGE = {
    "due_jobs": ("j.completed_at < p_before", "true"),
    "lock_due_jobs": ("h.completed_at < p_before AND h.retry_child_id IS NULL", "true"),
}


def plant(owner: psycopg.Connection, function: str, right: str, wrong: str) -> None:
    row: Any = owner.execute("SELECT pg_get_functiondef(%s::regproc)", [function]).fetchone()
    assert right in row[0]
    owner.execute(row[0].replace(right, wrong))


async def test_a_fault_that_chooses_too_young_jobs_takes_nothing(own: Urls) -> None:
    """The rows that were deleted are checked before anything is committed."""
    with psycopg.connect(own.admin, autocommit=True) as owner:
        for function, change in NO_AGE.items():
            plant(owner, function, *change)
        young = add_job(owner, DAY)
        async with open_store(own.application) as store:
            with pytest.raises(PurgeRefused, match="1 of 1 jobs of tenant 'acme' were not due"):
                await purge_once(store)
        assert job_ids(owner) == {young}
        assert events(owner) == [("jobs.retention.violated", "CRITICAL")]


@pytest.mark.parametrize("lying", [False, True])
async def test_a_job_that_went_too_early_is_found_by_counting_again(own: Urls, lying: bool) -> None:
    """Also when the purge itself says that all was well: counts before and after tell."""
    with psycopg.connect(own.admin, autocommit=True) as owner:
        add_jobs(owner, 7, DAY)
        add_jobs(owner, 5, OLD)
        plant(owner, "purge_jobs", "v_gone.early > 0 OR v_gone.jobs <> cardinality(v_rows)", "false")
        limit = "now()" if lying else "p_before + interval '29 days 12 hours'"
        plant(
            owner,
            "purge_jobs",
            "DELETE FROM job_events e",
            f"DELETE FROM job_history WHERE completed_at < {limit}; DELETE FROM job_events e",
        )
        async with open_store(own.application) as store:
            with pytest.raises(
                RetentionViolated, match="'acme': 7 jobs younger than the retention"
            ) as raised:
                await purge_once(store)
        assert raised.value.early
        assert events(owner) == [("jobs.retention.violated", "CRITICAL")]


async def test_a_chain_that_is_cut_is_found_by_counting_again(own: Urls) -> None:
    with psycopg.connect(own.admin, autocommit=True) as owner:
        add_chain(owner, [OLD, OLD, DAY])
        plant(
            owner,
            "purge_jobs",
            "DELETE FROM job_events e",
            "DELETE FROM job_history WHERE completed_at < p_before; DELETE FROM job_events e",
        )
        async with open_store(own.application) as store:
            with pytest.raises(RetentionViolated, match="2 old jobs have gone and only 0 were due"):
                await purge_once(store)


@pytest.mark.parametrize(
    ("age", "named"), [(DAY, "1 effects younger"), (91 * DAY, "1 old effects have gone")]
)
async def test_an_effect_that_went_too_early_is_found_by_counting_again(
    own: Urls, age: timedelta, named: str
) -> None:
    with psycopg.connect(own.admin, autocommit=True) as owner:
        add_effect(owner, add_job(owner, DAY), age)
        plant(
            owner,
            "purge_effects",
            "UPDATE purge_runs",
            "DELETE FROM job_effects; UPDATE purge_runs",
        )
        async with open_store(own.application) as store:
            with pytest.raises(RetentionViolated, match=named):
                await purge_once(store)


async def test_a_purge_that_takes_nothing_is_found(own: Urls) -> None:
    with psycopg.connect(own.admin, autocommit=True) as owner:
        add_jobs(owner, 4, OLD, tenant="slow")
        plant(owner, "lock_due_jobs", "RETURN v_alone || v_chains", "RETURN '{}'")
        async with open_store(own.application) as store:
            with pytest.raises(RetentionViolated, match="'slow': 4 jobs are due and still there"):
                await purge_once(store)


async def test_an_old_failed_job_that_is_cancelled_meanwhile_is_no_violation(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    """It ends anew, so it leaves its place in history without having gone."""
    job_id = add_job(owner, 20 * DAY, state="FAILED")
    limits = await Periods().limits(pg_store, FLOOR)
    async with recorded(pg_store, limits) as record:
        before = await look(pg_store, limits)
        with job_tenant_scope("acme"):
            await pg_store.cancel(job_id)
        purged = await purge(pg_store, record.run_id, limits, Budget())
        verdict = await verify(pg_store, before, purged, await look(pg_store, limits))
    assert verdict.is_good
    assert job_ids(owner) == {job_id}


async def test_a_job_that_is_retried_between_the_look_and_the_purge_stays(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    job_id = add_job(owner, OLD, state="FAILED")
    limits = await Periods().limits(pg_store, FLOOR)
    before = await look(pg_store, limits)
    with job_tenant_scope("acme"):
        child = await pg_store.retry(job_id, max_pending=None)
    purged = await purge(pg_store, None, limits, Budget())
    verdict = await verify(pg_store, before, purged, await look(pg_store, limits))
    assert verdict.is_good
    assert job_ids(owner) == {job_id, child.job_id}


async def test_two_failing_runs_in_a_row_are_said_and_a_success_ends_it(
    pg_store: PgJobsStore, owner: psycopg.Connection, admin_url: str
) -> None:
    async def fail() -> None:
        with pytest.raises(RetentionViolated):
            await purge_once(pg_store)

    held = add_job(owner, OLD)
    with psycopg.connect(admin_url) as other:
        other.execute("SELECT FROM job_history WHERE job_id = %s FOR UPDATE", [held])
        await fail()
        assert events(owner) == []
        await fail()
        assert events(owner) == [("jobs.retention.violated", "CRITICAL")]
        state = await pg_store.purge_state()
        assert (state.failing_runs, state.last_success_at) == (2, None)
        assert "1 jobs are due" in str(state.last_fault)
    await purge_once(pg_store)
    assert events(owner)[-1] == ("jobs.purge.completed", "INFO")
    state = await pg_store.purge_state()
    assert (state.failing_runs, state.last_fault) == (0, None)
    assert state.last_success_at is not None


async def test_a_run_that_was_killed_counts_as_a_failing_one(
    pg_store: PgJobsStore, owner: psycopg.Connection, admin_url: str
) -> None:
    limits = await Periods().limits(pg_store, FLOOR)
    await pg_store.begin_purge(limits)
    assert (await pg_store.purge_state()).failing_runs == 0
    held = add_job(owner, OLD)
    with psycopg.connect(admin_url) as other:
        other.execute("SELECT FROM job_history WHERE job_id = %s FOR UPDATE", [held])
        with pytest.raises(RetentionViolated):
            await purge_once(pg_store)
    assert events(owner) == [("jobs.retention.violated", "CRITICAL")]
    assert (await pg_store.purge_state()).failing_runs == 2


async def test_the_event_tells_counts_and_the_run_remembers_them(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_jobs(owner, 20, 100 * DAY, effects=True)
    add_event(owner, OLD, tenant=None)
    async with recorded(pg_store, await Periods().limits(pg_store, FLOOR)) as record:
        record.payload["tenants"] = 1
        limits = await Periods().limits(pg_store, FLOOR)
        await purge(pg_store, record.run_id, limits, Budget())
    row: Any = owner.execute("SELECT payload, tenant_id FROM job_events").fetchone()
    assert row[0] | {"bytes": 0} == {
        "tenants": 1,
        "runId": str(record.run_id),
        "jobs": 20,
        "events": 1,
        "effects": 20,
        "bytes": 0,
    }
    assert row[1] is None
    assert (await pg_store.purge_totals(record.run_id))[:3] == (20, 1, 20)


async def test_only_one_purge_is_at_work(pg_store: PgJobsStore, database_url: str) -> None:
    limits = await Periods().limits(pg_store, FLOOR)
    async with open_store(database_url) as other, recorded(other, limits):
        with pytest.raises(PurgeUnderWay, match="another purge"):
            await purge_once(pg_store)
    await purge_once(pg_store)


async def test_a_purge_that_sees_no_tenant_is_no_success(own: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "STATISTICS_LAG", 0.1)
    with psycopg.connect(own.admin, autocommit=True) as owner:
        add_jobs(owner, 10, OLD)
        for table in ("job_history", "job_events", "job_effects"):
            owner.execute(f"DROP POLICY enumerate_tenants ON {table}")
        owner.execute("SELECT pg_stat_force_next_flush()")
        async with open_store(own.application) as store:
            await eventually(store.has_rows)
            settings = Settings(database_url=own.application)
            with pytest.raises(RetentionViolated, match="no tenant is seen"):
                async with purge_run(store, settings, Periods()) as run:
                    await run.look()
            assert (await store.purge_state()).failing_runs == 1
        assert rows_of(owner, "job_history") == 10


async def test_the_lock_outlives_a_timeout_of_idle_transactions(own: Urls) -> None:
    held = (
        "SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
        " WHERE l.locktype = 'advisory' AND d.datname = current_database()"
    )
    with psycopg.connect(own.admin, autocommit=True) as owner:
        owner.execute(f"ALTER DATABASE {owner.info.dbname} SET idle_in_transaction_session_timeout = '500ms'")
        async with open_store(own.application) as store:
            async with recorded(store, await Periods().limits(store, FLOOR)):
                [(pid,)] = owner.execute(held).fetchall()
                owner.execute("SELECT pg_sleep(1)")
                assert owner.execute(held).fetchall() == [(pid,)]
            assert (await store.purge_state()).last_success_at is not None


async def test_the_record_of_purges_does_not_grow_without_bound(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    await purge_once(pg_store)
    owner.execute("UPDATE purge_runs SET started_at = now() - interval '13 months'")
    await purge_once(pg_store)
    assert rows_of(owner, "purge_runs") == 1


async def test_the_systems_own_events_are_kept_as_long_as_jobs(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    await pg_store.record_events([NewEvent("redis.health.recovered", "INFO", {})])
    owner.execute("UPDATE job_events SET occurred_at = now() - interval '31 days'")
    await purge_once(pg_store)
    assert rows_of(owner, "job_events") == 2  # not published yet, and this run's own
    owner.execute("UPDATE job_events SET published_at = now()")
    await purge_once(pg_store)
    assert events(owner) == [("jobs.purge.completed", "INFO")] * 2
    assert rows_of(owner, "job_events") == 2
