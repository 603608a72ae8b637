"""The shape of the hot path and of the nightly passes: what they touch does not grow with what lies behind them.

Pages are counted, never time. A snapshot that another session holds keeps every dead index entry. That these
checks see a shape that grows is tested too, by planting some.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from durable_jobs import job_tenant_scope
from durable_jobs.sql import functions
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.statements import CLAIM, FINISH
from durable_jobs.stores.protocols import Claim, Front
from tests.support.cluster import Urls
from tests.support.history import DAY, add_jobs
from tests.support.jobs import QUEUE, enter, new_job, succeeded
from tests.support.stores import open_store

BATCH = 100
SLACK = 1.3
FEW, MANY = 1_000, 5_000
_HISTORY = """
    INSERT INTO job_history (job_id, tenant_id, job_type, queue, state, payload, payload_hash, root_job_id,
        claim_token, executor_id, completed_at)
    SELECT id, 'acme', 'WORK', 'work', 'SUCCEEDED', '{}', 'x', id, id, id, now()
    FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, %s)) AS done
"""


class Postgres:
    """Counts the pages that a call touches, in a session of the application, and undoes the call."""

    def __init__(self, session: psycopg.Connection) -> None:
        self.session = session

    def pages(self, statement: str, params: dict[str, Any]) -> int:
        """Return the pages that a call reads or writes."""
        with self.session.transaction(force_rollback=True):
            # The first call of a session reads the catalogue.
            self.session.execute(statement, params)
        with self.session.transaction(force_rollback=True):
            row = self.session.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params
            ).fetchone()
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    def claim(self, executor: UUID, fronts: Sequence[Front] | None) -> int:
        """Return the pages of a claim of one batch."""
        params = {"executor": executor, "queue": QUEUE, "limit": BATCH, "after": "", "now": None}
        return self.pages(
            CLAIM, params | {"fronts": None if fronts is None else json.dumps(fronts, default=str)}
        )

    def finish(self, claim: Claim) -> int:
        """Return the pages of the outcomes of one batch."""
        outcomes = [
            {"n": n, "job_id": str(job.job_id), "claim_token": str(job.claim_token), "state": "SUCCEEDED"}
            | {"result": {"status": "OK"}, "failed_reason": None, "retryable": True}
            for n, job in enumerate(claim.jobs)
        ]
        return self.pages(FINISH, {"tenants": ["acme"], "outcomes": json.dumps(outcomes), "now": None})


class Place(NamedTuple):
    """A database that is worked in, and looked at."""

    urls: Urls
    store: PgJobsStore
    executor: UUID
    postgres: Postgres
    owner: psycopg.Connection


@asynccontextmanager
async def place(urls: Urls) -> AsyncIterator[Place]:
    """Work in a database."""
    with (
        psycopg.connect(urls.application, autocommit=True) as session,
        psycopg.connect(urls.admin, autocommit=True) as owner,
    ):
        async with open_store(urls.application) as store:
            yield Place(urls, store, await enter(store), Postgres(session), owner)


async def register(store: PgJobsStore, jobs: int) -> None:
    with job_tenant_scope("acme"):
        for _ in range(0, jobs, BATCH):
            await store.register_idempotent([new_job() for _ in range(BATCH)])


async def work_off(store: PgJobsStore, executor: UUID, jobs: int) -> Claim:
    """Finish many jobs batch by batch, each claim from the front of the one before."""
    fronts: list[Front] | None = None
    for _ in range(0, jobs, BATCH):
        claim = await store.claim(executor, QUEUE, BATCH, fronts=fronts)
        fronts = claim.fronts
        await store.finish([succeeded(job) for job in claim.jobs])
    return claim


async def check_beside_history(here: Place) -> None:
    """Check that claims and outcomes touch no more beside a long history than beside a short one."""
    seen = []
    for history in (FEW, 10 * MANY):
        here.owner.execute(_HISTORY, [history])
        here.owner.execute("VACUUM (ANALYZE) job_history")
        await register(here.store, 2 * BATCH)
        claimed = here.postgres.claim(here.executor, None)
        claim = await here.store.claim(here.executor, QUEUE, 2 * BATCH)
        half = Claim(claim.jobs[:BATCH], [])
        seen.append((claimed, here.postgres.finish(half)))
        await here.store.finish([succeeded(job) for job in claim.jobs])
    (claim_few, finish_few), (claim_many, finish_many) = seen
    # A tree of 50,000 entries is one level higher than one of 1,000: a page for each look-up.
    assert claim_many < claim_few * SLACK + 6 * BATCH, "a claim sees the history"
    assert finish_many < finish_few * SLACK + 6 * BATCH, "a finish sees the history"


async def check_under_a_snapshot(here: Place) -> None:
    """Check that outcomes touch no dead entries, and that claims step over them."""
    with psycopg.connect(here.urls.admin) as snapshot:
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT count(*) FROM job_history")
        seen = []
        for jobs in (FEW, MANY):
            await register(here.store, jobs + 2 * BATCH)
            last = await work_off(here.store, here.executor, jobs)
            from_front = here.postgres.claim(here.executor, last.fronts)
            everywhere = here.postgres.claim(here.executor, None)
            waiting = await here.store.claim(here.executor, QUEUE, BATCH, fronts=last.fronts)
            seen.append((from_front, everywhere, here.postgres.finish(waiting)))
            await here.store.finish([succeeded(job) for job in waiting.jobs])
            await work_off(here.store, here.executor, BATCH)
    (front_few, full_few, finish_few), (front_many, full_many, finish_many) = seen
    assert front_many < front_few * SLACK, "a claim does not step over dead entries"
    assert finish_many < finish_few * SLACK, "a finish touches dead entries"
    # The dead entries are there: a claim that looks everywhere reads them.
    assert full_many - front_many > (full_few - front_few) * 2


async def test_claims_and_outcomes_do_not_see_the_history(urls: Urls) -> None:
    async with place(urls) as here:
        await check_beside_history(here)


async def test_outcomes_touch_no_dead_entries_and_claims_step_over_them(urls: Urls) -> None:
    async with place(urls) as here:
        await check_under_a_snapshot(here)


Check = Callable[[Place], Awaitable[None]]

BY_PRIMARY_KEY = "WHERE h.job_id = o.job_id AND h.completed_at IS NULL AND h.claim_token = o.claim_token"
BY_WHAT_RUNS = (
    "WHERE h.state = 'RUNNING' AND h.executor_id = (SELECT r.executor_id FROM job_executors r)"
    " AND h.claim_token = o.claim_token"
)
STEPS_OVER = "AND j.run_at >= v_front AND j.run_at <= v_now"


def replaced(function: str, right: str, wrong: str) -> str:
    """Return a function of the database with a fault in it."""
    text = functions()[function]
    assert right in text, "the function no longer reads as the plant expects"
    return text.replace(right, wrong)


@pytest.mark.parametrize(
    ("plant", "check", "found"),
    [
        (
            lambda: replaced("finish_jobs", BY_PRIMARY_KEY, BY_WHAT_RUNS),
            check_under_a_snapshot,
            "a finish touches dead entries",
        ),
        (
            lambda: replaced("claim_jobs", STEPS_OVER, "AND j.run_at <= v_now"),
            check_under_a_snapshot,
            "a claim does not step over dead entries",
        ),
        (lambda: "DROP INDEX job_history_claim", check_beside_history, "a claim sees the history"),
        (
            # Also the index of what runs: the planner may take it instead.
            lambda: (
                "ALTER TABLE job_history DROP CONSTRAINT job_history_pkey; DROP INDEX job_history_running"
            ),
            check_beside_history,
            "a (claim|finish) sees the history",
        ),
    ],
    ids=["finish by what runs", "claim from the beginning", "no index of claims", "no primary key"],
)
async def test_a_shape_that_grows_is_found(
    plant: Callable[[], str], check: Check, found: str, new_database: Callable[[], Urls]
) -> None:
    urls = new_database()
    with psycopg.connect(urls.admin, autocommit=True) as owner:
        owner.execute(plant())
    async with place(urls) as here:
        with pytest.raises(AssertionError, match=found):
            await check(here)


async def test_the_claim_reads_its_index_in_order(
    urls: Urls,
) -> None:
    async with place(urls) as here:
        here.owner.execute(_HISTORY, [MANY])
        await register(here.store, FEW)
        here.owner.execute("ANALYZE job_history")
        session = here.postgres.session
        with session.transaction():
            session.execute("SELECT set_tenants(ARRAY['acme'])")
            [plan] = session.execute(
                "EXPLAIN (FORMAT JSON) SELECT job_id FROM job_history WHERE queue = 'work'"
                " AND tenant_id = 'acme' AND state = 'PENDING' AND claim_order = 0 AND run_at <= now()"
                " AND crash_count = 0 ORDER BY run_at, job_id LIMIT 100 FOR UPDATE SKIP LOCKED"
            ).fetchone()
    nodes = json.dumps(plan)
    assert "job_history_claim" in nodes
    assert "Seq Scan" not in nodes
    assert '"Sort"' not in nodes


LETTERS = 200
_PASSES = {
    "tenants": "SELECT list_tenants('failed')",
    "figures of all": "SELECT * FROM count_jobs()",
    "figures": "SELECT * FROM count_letters('acme', '1 hour', NULL)",
    "list": "SELECT * FROM find_failed('acme', '{}', 50)",
    "choose": 'SELECT * FROM find_failed(\'acme\', \'{"job_type": "WORK", "reason_like": "%%no%%"}\', 50)',
    "lock": "SELECT * FROM lock_failed('acme', '{}', '{}', '{}', 50)",
    "abandon": "SELECT * FROM abandon_failed('acme', '{}', 50, 'me', 20, NULL)",
    "slow queues": "SELECT * FROM tell_stalled('10 min', NULL)",
    "orphans": "SELECT * FROM lock_orphans('acme', ARRAY[gen_random_uuid()], '{}', 10)",
}


async def test_passes_do_not_see_the_history(urls: Urls) -> None:
    seen = []
    async with place(urls) as here:
        add_jobs(here.owner, LETTERS, timedelta(minutes=5), state="FAILED", apart=timedelta(seconds=1))
        here.owner.execute(
            "UPDATE job_history SET retry_count = max_retries WHERE job_id IN ("
            " SELECT job_id FROM job_history LIMIT 100)"
        )
        for history in (FEW, 20 * MANY):
            add_jobs(here.owner, history, DAY, apart=timedelta(milliseconds=10))
            here.owner.execute("VACUUM (ANALYZE) job_history")
            seen.append({name: here.postgres.pages(call, {}) for name, call in _PASSES.items()})
    few, many = seen
    # A higher tree costs a page or two for each look-up, of which there is one for a letter.
    grown = {name: (few[name], n) for name, n in many.items() if n > few[name] * SLACK + 2 * LETTERS}
    assert grown == {}
