"""History of any age, written by the owner behind the application's back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

DAY = timedelta(days=1)

_MANY = """
WITH made AS (
    INSERT INTO job_history (
        job_id, tenant_id, job_type, queue, state, payload, payload_hash, result, failed_reason, root_job_id,
        created_at, started_at, completed_at, updated_at)
    SELECT i.id, %(tenant)s, %(type)s, 'work', %(state)s, jsonb_build_object('n', i.n, 'text', 'some words'), 'h',
           '{"status": "OK"}', CASE WHEN %(state)s = 'FAILED' THEN 'ValueError: no' END, i.id,
           i.at - interval '1 hour', i.at, i.at, i.at
    FROM (
        SELECT t.n, t.at, (lpad(to_hex((extract(epoch FROM t.at) * 1000)::bigint), 12, '0') || '7'
                   || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid AS id
        FROM (
            SELECT n, now() - make_interval(secs => %(age)s) - make_interval(secs => n * %(apart)s) AS at
            FROM generate_series(1, %(n)s) AS n
        ) t
    ) i
    RETURNING job_id, tenant_id, completed_at
), effects AS (
    INSERT INTO job_effects (
        tenant_id, key, effect_type, job_id, root_job_id, state, reservation, created_at, confirmed_at)
    SELECT m.tenant_id, m.job_id::text, 'MAIL', m.job_id, m.job_id, 'CONFIRMED', m.job_id, m.completed_at,
           m.completed_at
    FROM made m WHERE %(effects)s
)
SELECT count(*) FROM made
"""


def add_jobs(
    owner: psycopg.Connection,
    n: int,
    age: timedelta,
    *,
    tenant: str = "acme",
    job_type: str = "WORK",
    state: str = "SUCCEEDED",
    effects: bool = False,
    apart: timedelta = timedelta(0),
) -> None:
    """Add jobs that ended so long ago, each `apart` from the next, each with an effect if asked.

    Their ids follow time as real ones do: what is young lies together in the index of ids too.
    """
    owner.execute(
        _MANY,
        {
            "tenant": tenant,
            "type": job_type,
            "state": state,
            "n": n,
            "age": age.total_seconds(),
            "apart": apart.total_seconds(),
            "effects": effects,
        },
    )


def add_job(owner: psycopg.Connection, age: timedelta | None, **columns: Any) -> UUID:
    """Add one job; without an age it has not ended. Columns win over what follows from the state."""
    job_id = columns.pop("job_id", uuid7())
    state = columns.get("state", "PENDING" if age is None else "SUCCEEDED")
    row: dict[str, Any] = {
        "job_id": job_id,
        "tenant_id": "acme",
        "job_type": "WORK",
        "queue": "work",
        "state": state,
        "payload": Jsonb({"n": 1}),
        "payload_hash": "h",
        "root_job_id": job_id,
    }
    if state in ("FAILED", "RETRIED", "ABANDONED"):
        row["failed_reason"] = "ValueError: no"
    row |= columns
    names = ", ".join(row)
    values = ", ".join(f"%({name})s" for name in row)
    owner.execute(
        f"INSERT INTO job_history ({names}, created_at, completed_at)"
        f" VALUES ({values}, now() - interval '40 days', now() - make_interval(secs => %(age)s))",
        row | {"age": None if age is None else age.total_seconds()},
    )
    return job_id


def add_chain(
    owner: psycopg.Connection,
    ages: Sequence[timedelta | None],
    *,
    tenant: str = "acme",
    last: str = "SUCCEEDED",
) -> list[UUID]:
    """Add a job and its retries, each with its age; None for one that has not ended."""
    ids = [uuid7() for _ in ages]
    for n, (job_id, age) in enumerate(zip(ids, ages, strict=True)):
        is_last = n == len(ids) - 1
        add_job(
            owner,
            age,
            job_id=job_id,
            tenant_id=tenant,
            state=("PENDING" if age is None else last) if is_last else "RETRIED",
            root_job_id=ids[0],
            parent_job_id=ids[n - 1] if n else None,
            retry_child_id=None if is_last else ids[n + 1],
            retry_count=n,
            max_retries=len(ids),
        )
    return ids


def add_effect(
    owner: psycopg.Connection,
    job_id: UUID,
    age: timedelta,
    *,
    root: UUID | None = None,
    tenant: str = "acme",
    state: str = "CONFIRMED",
    confirmed: timedelta | None = None,
) -> None:
    """Add an effect that was made so long ago, and confirmed then or later."""
    owner.execute(
        """
        INSERT INTO job_effects (
            tenant_id, key, effect_type, job_id, root_job_id, state, claim_token, reservation, created_at,
            confirmed_at)
        VALUES (%(tenant)s, %(key)s, 'MAIL', %(job)s, %(root)s, %(state)s, gen_random_uuid(), gen_random_uuid(),
                now() - make_interval(secs => %(age)s),
                CASE WHEN %(state)s = 'CONFIRMED' THEN now() - make_interval(secs => %(confirmed)s) END)
        """,
        {
            "tenant": tenant,
            "key": str(uuid7()),
            "job": job_id,
            "root": root or job_id,
            "state": state,
            "age": age.total_seconds(),
            "confirmed": (confirmed or age).total_seconds(),
        },
    )


def add_event(
    owner: psycopg.Connection,
    age: timedelta,
    *,
    job_id: UUID | None = None,
    tenant: str | None = "acme",
    published: bool = True,
) -> None:
    """Add an event that occurred so long ago."""
    owner.execute(
        "INSERT INTO job_events (tenant_id, event, job_id, severity, occurred_at, published_at)"
        " SELECT %s, 'jobs.job.failed', %s, 'WARNING', o.at, CASE WHEN %s THEN o.at END"
        " FROM (SELECT now() - make_interval(secs => %s) AS at) o",
        [tenant, job_id, published, age.total_seconds()],
    )


def rows_of(owner: psycopg.Connection, table: str) -> int:
    """Return how many rows a table has."""
    row = owner.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0


def job_ids(owner: psycopg.Connection) -> set[UUID]:
    """Return the ids of all jobs."""
    return {row[0] for row in owner.execute("SELECT job_id FROM job_history")}
