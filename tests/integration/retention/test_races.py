"""A purge among people and flows that retry, resubmit and cancel what is just about to go."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from uuid import UUID

import psycopg

from durable_jobs.errors import DurableJobsError
from durable_jobs.retention import Budget, Periods, purge
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.retention import Limits
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.history import DAY, add_chain, add_job
from tests.support.purges import FLOOR

OLD = 31 * DAY
N = 300


async def disturb(store: PgJobsStore, jobs: Sequence[UUID], seed: int) -> int:
    """Retry, resubmit or cancel one after the other; return how many there still were."""
    choose, done = random.Random(seed), 0
    for job_id in choose.sample(list(jobs), len(jobs)):
        with suppress(DurableJobsError), job_tenant_scope("acme"):
            match choose.randrange(4):
                case 0:
                    await store.resubmit(job_id, max_pending=None)
                case 1:
                    await store.cancel(job_id)
                case _:
                    await store.retry(job_id, max_pending=None)
            done += 1
    return done


async def test_ret1_no_chain_is_ever_cut_whatever_happens_meanwhile(
    pg_store: PgJobsStore, owner: psycopg.Connection
) -> None:
    singles = [add_job(owner, OLD, state="FAILED") for _ in range(N)]
    tails = [add_chain(owner, [OLD, OLD, OLD], last="FAILED")[-1] for _ in range(N // 3)]
    limits = await Periods().limits(pg_store, FLOOR)

    async def purge_in_small_pages() -> int:
        after, gone = None, 0
        while True:
            page = await pg_store.purge("jobs", None, "acme", limits, after=after, limit=7)
            gone += page.gone
            if page.examined < 7:
                return gone
            after = page.end

    results = await asyncio.gather(
        disturb(pg_store, singles + tails, 1),
        disturb(pg_store, singles + tails, 2),
        purge_in_small_pages(),
        purge_in_small_pages(),
    )
    assert min(results[0] + results[1], results[2] + results[3]) > 0
    cut = owner.execute(
        """
        SELECT count(*) FROM job_history j
        WHERE (j.parent_job_id IS NOT NULL AND NOT EXISTS
                  (SELECT FROM job_history p WHERE p.job_id = j.parent_job_id AND p.retry_child_id = j.job_id))
           OR (j.retry_child_id IS NOT NULL AND NOT EXISTS
                  (SELECT FROM job_history c WHERE c.job_id = j.retry_child_id))
           OR NOT EXISTS (SELECT FROM job_history r WHERE r.job_id = j.root_job_id)
        """
    )
    assert cut.fetchone() == (0,)
    # What nobody touched is gone, and nothing that lives or ended anew is.
    await purge(pg_store, None, limits, Budget(timedelta(minutes=1)))
    left = owner.execute(
        "SELECT count(*) FROM job_history j WHERE j.completed_at < %s AND NOT EXISTS (SELECT FROM job_history o"
        " WHERE o.root_job_id = j.root_job_id AND (o.completed_at IS NULL OR o.completed_at >= %s))",
        [limits.jobs_before, limits.jobs_before],
    )
    assert left.fetchone() == (0,)


def locked(owner: psycopg.Connection, alone: list[UUID], roots: list[UUID], limits: Limits) -> int:
    """Return how many rows a purge that has looked at these jobs would take now."""
    [(rows,)] = owner.execute(
        "SELECT cardinality(lock_due_jobs(%s, %s, %s))", [alone, roots, limits.jobs_before]
    ).fetchall()
    return int(rows)


async def test_what_changed_between_the_look_and_the_lock_is_left_alone(
    pg_store: PgJobsStore, owner: psycopg.Connection, urls: Urls
) -> None:
    limits = await Periods().limits(pg_store, FLOOR)
    single = add_job(owner, OLD)
    old = add_chain(owner, [OLD, OLD])
    young = add_chain(owner, [OLD, DAY])
    assert locked(owner, [single], [old[0]], limits) == 3
    # Looked at as a job without a retry, which it has by now.
    assert locked(owner, [old[0]], [], limits) == 0
    assert locked(owner, [], [young[0]], limits) == 0
    with psycopg.connect(urls.admin) as somebody:
        somebody.execute("SELECT FROM job_history WHERE job_id = ANY (%s) FOR UPDATE", [[single, old[1]]])
        assert locked(owner, [single], [old[0]], limits) == 0
    assert locked(owner, [single], [old[0]], limits) == 3
