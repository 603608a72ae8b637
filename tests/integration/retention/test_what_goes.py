"""What a purge takes and what it leaves: age from the end, live jobs never, chains whole."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import product
from typing import Any

import psycopg
import pytest

from durable_jobs.errors import BadInput, RetentionTooShort
from durable_jobs.retention import Periods, look
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.retention import Limits
from tests.support.cluster import Urls
from tests.support.history import DAY, add_chain, add_event, add_job, add_jobs, job_ids, rows_of
from tests.support.purges import FLOOR, purge_once
from tests.support.stores import open_store

OLD, YOUNG = 31 * DAY, 29 * DAY + timedelta(hours=20)
ENDED = [state for state in JobState if state not in (JobState.PENDING, JobState.RUNNING)]
CLAIMED = {
    "state": "RUNNING",
    "claim_token": "0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55",
    "executor_id": "0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a56",
    "deadline_at": "2020-01-01T00:00:00Z",
}


async def test_t18_t19_what_ended_over_30_days_ago_goes_and_what_is_younger_stays(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    young = {add_job(owner, YOUNG), add_job(owner, 0 * DAY), add_job(owner, 30 * DAY - timedelta(minutes=1))}
    add_job(owner, OLD)
    add_job(owner, 30 * DAY + timedelta(seconds=1))
    done = await purge_once(pg_store)
    assert job_ids(owner) == young
    assert done.purged.total == 2
    assert (await purge_once(pg_store)).purged.total == 0


async def test_t5_a_finished_job_stays_for_30_days(pg_store: PgJobsStore, owner: psycopg.Connection) -> None:
    job_id = add_job(owner, 30 * DAY - timedelta(minutes=1))
    await purge_once(pg_store)
    assert job_ids(owner) == {job_id}
    owner.execute("UPDATE job_history SET completed_at = completed_at - interval '2 minutes'")
    await purge_once(pg_store)
    assert job_ids(owner) == set()


async def test_t20_pending_and_running_jobs_never_go_however_old(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    live = {add_job(owner, None), add_job(owner, None, **CLAIMED)}
    owner.execute("UPDATE job_history SET created_at = now() - interval '10 years', started_at = created_at")
    await purge_once(pg_store)
    assert job_ids(owner) == live


async def test_ret4_age_counts_from_the_end_in_every_state(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    """All seven states, all created 40 days ago; only those that ended 31 days ago go."""
    stays = {add_job(owner, None), add_job(owner, None, **CLAIMED)}
    for state, retryable in product(ENDED, (True, False)):
        if state is JobState.RETRIED:
            continue
        stays.add(add_job(owner, DAY, state=str(state), retryable=retryable))
        add_job(owner, OLD, state=str(state), retryable=retryable)
    add_chain(owner, [OLD, OLD])
    stays |= set(add_chain(owner, [OLD, None]))
    stays |= set(add_chain(owner, [OLD, DAY], last="ABANDONED"))
    listed = (await look(pg_store, await Periods().limits(pg_store, FLOOR))).tenants["acme"]
    done = await purge_once(pg_store)
    assert job_ids(owner) == stays
    assert listed.due == done.purged.total == 2 * (len(ENDED) - 1) + 2
    gone = {(job_type, state): n for (_, job_type, state), n in done.purged.jobs.items()}
    assert gone == {key: group.jobs for key, group in listed.groups.items()}
    assert listed.kept_with_chain == 2


@pytest.mark.parametrize("n", range(1, 7))
async def test_ret1_chains_of_mixed_ages_go_whole_or_not_at_all(
    pg_store: PgJobsStore, owner: psycopg.Connection, n: int
) -> None:
    """Every mixture of old and young over a chain, so also an old child of a young parent."""
    stays = set()
    for old in product((True, False), repeat=n):
        chain = add_chain(owner, [OLD if is_old else DAY for is_old in old])
        stays |= set() if all(old) else set(chain)
    unfinished = add_chain(owner, [OLD] * (n - 1) + [None])
    lonely = add_job(owner, OLD)
    done = await purge_once(pg_store)
    assert job_ids(owner) == stays | set(unfinished)
    assert lonely not in job_ids(owner)
    assert done.purged.total == n + 1
    assert (await purge_once(pg_store)).purged.total == 0


async def test_ret1_a_chain_of_a_thousand_goes_in_one_piece(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_chain(owner, [OLD + (1_000 - n) * timedelta(minutes=1) for n in range(1_000)])
    kept = add_chain(owner, [OLD + (999 - n) * timedelta(minutes=1) for n in range(999)] + [DAY])
    done = await purge_once(pg_store)
    assert done.purged.total == 1_000
    assert job_ids(owner) == set(kept)
    assert done.before.tenants["acme"].kept_with_chain == 999


async def test_ret1_a_resubmission_is_a_root_of_its_own_and_keeps_its_lineage(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    """The branch: what was resubmitted goes, what it became stays and still names it."""
    first = add_job(owner, OLD, state="FAILED")
    second = add_job(owner, DAY, replay_of=first)
    await purge_once(pg_store)
    assert job_ids(owner) == {second}
    row: Any = owner.execute("SELECT replay_of FROM job_history").fetchone()
    assert row[0] == first


async def test_a_chain_whose_first_job_was_deleted_by_hand_still_goes(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    first, *_ = add_chain(owner, [OLD, OLD, OLD])
    owner.execute("DELETE FROM job_history WHERE job_id = %s", [first])
    await purge_once(pg_store)
    assert job_ids(owner) == set()


async def test_a_parent_that_does_not_know_its_child_is_kept_with_it(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    parent = add_job(owner, OLD, state="FAILED")
    child = add_job(owner, DAY, parent_job_id=parent, root_job_id=parent)
    await purge_once(pg_store)
    assert job_ids(owner) == {parent, child}


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/St_Johns", "Europe/Paris"])
async def test_29_days_and_20_hours_stay_in_every_time_zone(
    urls: Urls, owner_connection: psycopg.Connection, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zones of the session, the client and the server's rows; none of them moves the limit."""
    monkeypatch.setenv("PGTZ", zone)
    monkeypatch.setenv("TZ", zone)
    young = add_job(owner_connection, YOUNG)
    add_job(owner_connection, 30 * DAY + timedelta(minutes=1))
    async with open_store(urls.application) as store:
        done = await purge_once(store)
    assert job_ids(owner_connection) == {young}
    assert done.purged.total == 1


@pytest.mark.parametrize(
    "now",
    ["2030-03-31T12:00:00+00:00", "2030-10-27T12:00:00+00:00", "2030-04-10T00:30:00+00:00"],
)
async def test_thirty_days_are_720_hours_across_a_clock_change(
    urls: Urls, now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A day of 23 or 25 hours in the session's zone makes nothing go an hour early."""
    monkeypatch.setenv("PGTZ", "Europe/Paris")
    moment = datetime.fromisoformat(now)
    async with open_store(urls.application) as store:
        limits = await Periods().limits(store, FLOOR, now=moment)
    utc = [limit.timestamp() for limit in limits]
    assert utc[0] - utc[1] == 30 * 86_400
    assert utc[0] - utc[2] == 90 * 86_400


async def test_a_naive_moment_is_refused(pg_store: PgJobsStore) -> None:
    naive = datetime(2030, 1, 1)  # noqa: DTZ001 -- that is the point
    with pytest.raises(BadInput, match="no time zone"):
        await pg_store.purge("jobs", None, "acme", Limits(naive, naive, naive), limit=1)
    with pytest.raises(BadInput, match="no time zone"):
        await pg_store.list_due_jobs("acme", Limits(naive, naive, naive), limit=1)
    with pytest.raises(BadInput, match="no time zone"):
        await Periods().limits(pg_store, FLOOR, now=naive)


async def test_a_retention_under_the_floor_is_refused(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_job(owner, 40 * DAY)
    for periods in (Periods(jobs=timedelta(hours=23)), Periods(effects=timedelta(0)), Periods(redis=-DAY)):
        with pytest.raises(RetentionTooShort, match="DURABLE_JOBS_MIN_RETENTION"):
            await purge_once(pg_store, periods)
    with pytest.raises(RetentionTooShort, match="longest"):
        await purge_once(pg_store, Periods(jobs=timedelta.max))
    assert rows_of(owner, "job_history") == 1


async def test_each_tenant_is_purged_and_counted_apart(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    for n, tenant in enumerate(("a", "b", "c")):
        add_jobs(owner, 10 * (n + 1), OLD, tenant=tenant, job_type="MAIL")
        add_jobs(owner, 5, DAY, tenant=tenant)
    done = await purge_once(pg_store)
    assert {tenant: n for (tenant, _, _), n in done.purged.jobs.items()} == {"a": 10, "b": 20, "c": 30}
    assert rows_of(owner, "job_history") == 15
    assert done.purged.bytes == done.before.total("bytes") > 60 * 350


async def test_ret5_events_go_with_their_job_when_they_are_published_and_never_before(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    gone, stays = add_job(owner, OLD, state="FAILED"), add_job(owner, DAY, state="FAILED")
    for job_id in (gone, stays):
        add_event(owner, OLD, job_id=job_id)
    add_event(owner, OLD, job_id=gone, published=False)
    add_event(owner, OLD, tenant=None)
    add_event(owner, DAY, tenant=None)
    add_event(owner, OLD, tenant=None, published=False)
    add_event(owner, OLD)
    await purge_once(pg_store)
    left = owner.execute(
        "SELECT job_id, tenant_id, published_at IS NULL FROM job_events WHERE event ~ 'failed'"
    )
    assert sorted(left.fetchall(), key=str) == sorted(
        [(stays, "acme", False), (gone, "acme", True), (None, None, False), (None, None, True)], key=str
    )
    # What was published late goes as soon as it is.
    owner.execute("UPDATE job_events SET published_at = now()")
    await purge_once(pg_store)
    assert owner.execute("SELECT count(*) FROM job_events WHERE job_id = %s", [gone]).fetchone() == (0,)


async def test_ret5_no_row_is_left_without_what_it_belongs_to(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_jobs(owner, 50, 100 * DAY, effects=True)
    add_jobs(owner, 50, 40 * DAY, effects=True)
    add_jobs(owner, 50, DAY, effects=True)
    for (job_id,) in owner.execute("SELECT job_id FROM job_history").fetchall():
        add_event(owner, OLD, job_id=job_id)
    await purge_once(pg_store)
    assert rows_of(owner, "job_history") == 50
    assert rows_of(owner, "job_effects") == 100
    orphans = owner.execute(
        "SELECT count(*) FROM job_events e WHERE e.job_id IS NOT NULL AND NOT EXISTS"
        " (SELECT FROM job_history j WHERE j.job_id = e.job_id)"
    )
    assert orphans.fetchone() == (0,)
