"""The shape of the hot path: what a claim and a finish touch does not grow with what lies behind them.

Pages are counted, never time. A snapshot that another session holds keeps every dead index entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from durable_jobs import job_tenant_scope
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.statements import CLAIM, FINISH
from durable_jobs.stores.protocols import Claim, Front
from tests.support.jobs import QUEUE, enter, new_job, succeeded

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


@pytest.fixture
def postgres(database_url: str) -> Postgres:
    with psycopg.connect(database_url, autocommit=True) as session:
        yield Postgres(session)


@pytest.fixture
async def executor(pg_store: PgJobsStore) -> UUID:
    return await enter(pg_store)


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


async def test_claims_and_outcomes_do_not_see_the_history(
    pg_store: PgJobsStore, executor: UUID, postgres: Postgres, owner_connection: psycopg.Connection
) -> None:
    seen = []
    for history in (FEW, 10 * MANY):
        owner_connection.execute(_HISTORY, [history])
        owner_connection.execute("VACUUM (ANALYZE) job_history")
        await register(pg_store, 2 * BATCH)
        claimed = postgres.claim(executor, None)
        claim = await pg_store.claim(executor, QUEUE, 2 * BATCH)
        half = Claim(claim.jobs[:BATCH], [])
        seen.append((claimed, postgres.finish(half)))
        await pg_store.finish([succeeded(job) for job in claim.jobs])
    (claim_few, finish_few), (claim_many, finish_many) = seen
    # A tree of 50,000 entries is one level higher than one of 1,000: a page for each look-up.
    assert claim_many < claim_few * SLACK + 6 * BATCH
    assert finish_many < finish_few * SLACK + 6 * BATCH


async def test_outcomes_touch_no_dead_entries_and_claims_step_over_them(
    pg_store: PgJobsStore, executor: UUID, postgres: Postgres, worker_urls: Any
) -> None:
    with psycopg.connect(worker_urls.admin) as snapshot:
        snapshot.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT count(*) FROM job_history")
        seen = []
        for jobs in (FEW, MANY):
            await register(pg_store, jobs + 2 * BATCH)
            last = await work_off(pg_store, executor, jobs)
            from_front = postgres.claim(executor, last.fronts)
            everywhere = postgres.claim(executor, None)
            waiting = await pg_store.claim(executor, QUEUE, BATCH, fronts=last.fronts)
            seen.append((from_front, everywhere, postgres.finish(waiting)))
            await pg_store.finish([succeeded(job) for job in waiting.jobs])
            await work_off(pg_store, executor, BATCH)
    (front_few, full_few, finish_few), (front_many, full_many, finish_many) = seen
    assert front_many < front_few * SLACK
    assert finish_many < finish_few * SLACK
    # The dead entries are there: a claim that looks everywhere reads them.
    assert full_many - front_many > (full_few - front_few) * 2


async def test_the_claim_reads_its_index_in_order(
    pg_store: PgJobsStore, postgres: Postgres, owner_connection: psycopg.Connection
) -> None:
    owner_connection.execute(_HISTORY, [MANY])
    await register(pg_store, FEW)
    owner_connection.execute("ANALYZE job_history")
    with postgres.session.transaction():
        postgres.session.execute("SELECT set_tenants(ARRAY['acme'])")
        [plan] = postgres.session.execute(
            "EXPLAIN (FORMAT JSON) SELECT job_id FROM job_history WHERE queue = 'work' AND tenant_id = 'acme'"
            " AND state = 'PENDING' AND claim_order = 0 AND run_at <= now() AND crash_count = 0"
            " ORDER BY run_at, job_id LIMIT 100 FOR UPDATE SKIP LOCKED"
        ).fetchone()
    nodes = json.dumps(plan)
    assert "job_history_claim" in nodes
    assert "Seq Scan" not in nodes
    assert '"Sort"' not in nodes
