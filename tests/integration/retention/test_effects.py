"""Effects live 90 days on their own clock, and never go before the last job of their chain."""

from __future__ import annotations

import psycopg

from durable_jobs.retention import Periods
from durable_jobs.stores.postgres import PgJobsStore
from tests.support.history import DAY, add_chain, add_effect, add_job, add_jobs, rows_of
from tests.support.purges import purge_once

OVER = 91 * DAY


async def test_ret5_effects_outlive_their_job_by_their_own_clock(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    """Inside their 90 days they are there for whoever runs the same thing again."""
    add_jobs(owner, 10, 40 * DAY, effects=True)
    await purge_once(pg_store)
    assert (rows_of(owner, "job_history"), rows_of(owner, "job_effects")) == (0, 10)
    older = "created_at = created_at - interval '51 days', confirmed_at = confirmed_at - interval '51 days'"
    owner.execute(f"UPDATE job_effects SET {older}")
    done = await purge_once(pg_store)
    assert rows_of(owner, "job_effects") == 0
    assert done.purged.effects == done.before.total("effects_due") == 10


async def test_effects_never_go_before_the_last_job_of_their_chain(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    live = add_chain(owner, [40 * DAY, None])
    young = add_chain(owner, [40 * DAY, 2 * DAY])
    old = add_chain(owner, [40 * DAY, 40 * DAY])
    for chain in (live, young, old):
        for job_id in chain:
            add_effect(owner, job_id, OVER, root=chain[0])
    done = await purge_once(pg_store)
    left = {row[0] for row in owner.execute("SELECT root_job_id FROM job_effects")}
    assert left == {live[0], young[0]}
    assert done.after.total("effects_kept") == 4


async def test_effects_stay_for_what_was_submitted_anew_from_their_chain(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    """A resubmission finds the effects of the chain that it repeats, so they go after it."""
    chains = [add_chain(owner, [40 * DAY, 40 * DAY]) for _ in range(3)]
    for chain in chains:
        add_effect(owner, chain[0], OVER, root=chain[0])
    for chain, age in zip(chains, (None, 2 * DAY, 40 * DAY), strict=True):
        add_job(owner, age, replay_of=chain[1], origin_job_id=chain[0])
    done = await purge_once(pg_store)
    left = {row[0] for row in owner.execute("SELECT root_job_id FROM job_effects")}
    assert left == {chains[0][0], chains[1][0]}
    assert done.after.total("effects_kept") == 2


async def test_the_clock_of_an_effect_begins_when_it_was_confirmed(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    gone = add_job(owner, 100 * DAY)
    add_effect(owner, gone, OVER, confirmed=89 * DAY)
    add_effect(owner, gone, OVER, state="RESERVED")
    add_effect(owner, gone, OVER, state="UNKNOWN")
    await purge_once(pg_store)
    assert owner.execute("SELECT state FROM job_effects").fetchall() == [("CONFIRMED",)]


async def test_jobs_kept_longer_than_effects_keep_their_effects(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_jobs(owner, 5, 100 * DAY, effects=True)
    await purge_once(pg_store, Periods(jobs=365 * DAY))
    assert (rows_of(owner, "job_history"), rows_of(owner, "job_effects")) == (5, 5)


async def test_a_tenant_of_whom_only_effects_are_left_is_found(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    add_effect(owner, add_job(owner, 40 * DAY, tenant_id="gone"), OVER, tenant="gone")
    owner.execute("DELETE FROM job_history")
    assert await pg_store.tenants("purgeable") == ["gone"]
    await purge_once(pg_store)
    assert rows_of(owner, "job_effects") == 0
