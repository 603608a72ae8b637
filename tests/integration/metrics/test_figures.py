"""Figures tell what is, over all tenants, and nothing of any tenant; another's history costs nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from durable_jobs.metrics import Metrics
from durable_jobs.metrics.figures import Figures
from durable_jobs.metrics.reading import FiguresReader
from durable_jobs.queues import Queue
from durable_jobs.registry import Registry
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.postgres.database import Database
from durable_jobs.tenants import job_tenant_scope
from tests.support.cluster import Urls
from tests.support.history import add_event, add_job, add_jobs
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded

REGISTRY = Registry.of([], [Queue(QUEUE, concurrency=7, max_pending=50)])
TYPES = ("WORK", "OTHER")
Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture
async def reader(database_url: str) -> AsyncIterator[FiguresReader]:
    database = Database(database_url, timeout=timedelta(seconds=30), pool_size=1, prepared_statements=True)
    found = FiguresReader(database, queues=REGISTRY.queues, types=TYPES, stale_after=timedelta(seconds=60))
    await found.open()
    yield found
    await found.close()


@pytest.fixture
async def metrics(database_url: str) -> AsyncIterator[Metrics]:
    async with Metrics.from_settings(Settings(database_url=database_url), REGISTRY) as opened:
        yield opened


async def read(reader: FiguresReader) -> Figures:
    figures = await reader.read()
    assert figures is not None
    return figures


def samples(body: bytes) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


async def test_what_is_live_is_counted_over_all_tenants(reader: FiguresReader, pg_store: PgJobsStore) -> None:
    executor = await enter(pg_store)
    for tenant in ("acme", "globex"):
        with job_tenant_scope(tenant):
            await pg_store.register_idempotent([new_job() for _ in range(5)])
            await pg_store.register_idempotent([new_job(run_at=datetime.now(UTC) + timedelta(hours=1))])
    jobs = (await pg_store.claim(executor, QUEUE, 6)).jobs
    await pg_store.finish([failed(jobs[0]), failed(jobs[1]), succeeded(jobs[2])])
    live = (await read(reader)).live
    [pending], [running], [letters] = live.pending, live.running, live.letters
    assert (pending.queue, pending.jobs, pending.delayed) == (QUEUE, 6, 2)
    assert pending.oldest_s > 0
    assert (running.queue, running.jobs, running.stalled) == (QUEUE, 3, 0)
    assert (letters.queue, letters.job_type, letters.jobs) == (QUEUE, "WORK", 2)
    assert live.executors == {"silent": 0, "draining": 0, "idle": 0, "working": 1}


async def test_a_dead_letter_that_was_resubmitted_is_none_any_more(
    reader: FiguresReader, pg_store: PgJobsStore
) -> None:
    executor = await enter(pg_store)
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job(), new_job()])
        jobs = (await pg_store.claim(executor, QUEUE, 2)).jobs
        await pg_store.finish([failed(job) for job in jobs])
        await pg_store.resubmit(jobs[0].job_id, max_pending=None)
    [letters] = (await read(reader)).live.letters
    assert letters.jobs == 1


async def test_jobs_of_silent_or_unknown_executors_and_overdue_ones_are_stalled(
    reader: FiguresReader, pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    alive, silent = await enter(pg_store), await enter(pg_store)
    with job_tenant_scope("acme"):
        await pg_store.register_idempotent([new_job() for _ in range(7)])
    await pg_store.claim(alive, QUEUE, 3)
    await pg_store.claim(silent, QUEUE, 4)
    assert [(r.jobs, r.stalled) for r in (await read(reader)).live.running] == [(7, 0)]
    owner_connection.execute(
        "UPDATE job_executors SET last_seen_at = now() - interval '61 s' WHERE executor_id = %s", [silent]
    )
    live = (await read(reader)).live
    assert [(r.jobs, r.stalled) for r in live.running] == [(7, 4)]
    assert (live.executors["silent"], live.executors["working"]) == (1, 1)
    owner_connection.execute("DELETE FROM job_executors WHERE executor_id = %s", [silent])
    owner_connection.execute(
        "UPDATE job_history SET deadline_at = now() - interval '1 s' WHERE job_id ="
        " (SELECT job_id FROM job_history WHERE executor_id = %s LIMIT 1)",
        [alive],
    )
    assert [(r.jobs, r.stalled) for r in (await read(reader)).live.running] == [(7, 5)]


async def test_wait_run_and_failures_are_of_what_ended_lately(
    reader: FiguresReader, owner_connection: psycopg.Connection
) -> None:
    add_jobs(owner_connection, 1_000, timedelta(hours=1), state="FAILED")
    for n in range(1, 101):
        owner_connection.execute(
            "INSERT INTO job_history (job_id, tenant_id, job_type, queue, state, failed_reason, payload,"
            " payload_hash, root_job_id, created_at, run_at, started_at, completed_at)"
            " SELECT id, %(tenant)s, 'WORK', 'work', %(state)s, CASE WHEN %(state)s = 'FAILED' THEN 'x' END,"
            " '{}', 'h', id, now() - interval '200 s', now() - interval '100 s',"
            " now() - interval '100 s' + make_interval(secs => %(n)s / 10.0),"
            " now() - interval '90 s' + make_interval(secs => %(n)s / 10.0)"
            " FROM (SELECT gen_random_uuid() AS id) i",
            {"tenant": f"t{n % 7}", "state": "FAILED" if n <= 25 else "SUCCEEDED", "n": n},
        )
    recent = (await read(reader)).recent
    [ended] = recent.types
    assert (recent.window_s, ended.succeeded, ended.failed, ended.cancelled) == (300, 75, 25, 0)
    assert ended.wait_s == pytest.approx([5.05, 9.505, 9.901])
    assert ended.run_s == pytest.approx([10, 10, 10])


async def test_the_window_shrinks_until_no_more_is_read_than_is_allowed(
    urls: Urls, owner_connection: psycopg.Connection
) -> None:
    for tenant in ("acme", "globex"):
        add_jobs(owner_connection, 2_000, timedelta(seconds=0), tenant=tenant, apart=timedelta(seconds=0.1))
    with psycopg.connect(urls.application) as connection:
        for most, window, at_least in ((5_000, 300, 3_990), (1_500, 60, 1_000), (50, 1, 1)):
            row = connection.execute(
                "SELECT measure_recent(ARRAY['work'], ARRAY['WORK'],"
                " ARRAY['300 s', '60 s', '1 s']::interval[], %s, NULL)",
                [most],
            ).fetchone()
            document: Any = row[0] if row else None
            assert document["window_s"] == window
            assert at_least <= document["types"][0]["succeeded"] <= most


async def test_labels_are_declared_names_only(metrics: Metrics, owner_connection: psycopg.Connection) -> None:
    for n in range(50):
        add_job(
            owner_connection, None, queue=f"made-up-{n}", job_type=f"MADE-UP-{n}", tenant_id=f"secret-{n}"
        )
        add_job(owner_connection, timedelta(0), queue=f"made-up-{n}", job_type=f"MADE-UP-{n}", state="FAILED")
    body = (await metrics.scrape()).body
    assert b"made-up" not in body.lower()
    assert b"secret" not in body
    found = samples(body)
    assert found["durable_jobs_jobs"][("queue", "(undeclared)"), ("state", "PENDING")] == 50
    of = (("job_type", "(undeclared)"), ("outcome", "failed"), ("queue", "(undeclared)"))
    assert found["durable_jobs_recent_jobs"][of] == 50


async def test_the_exposition_tells_zeros_bounds_pauses_and_the_outbox(
    metrics: Metrics, pg_store: PgJobsStore, owner_connection: psycopg.Connection
) -> None:
    await pg_store.pause("queue", QUEUE, by="ops")
    add_event(owner_connection, timedelta(minutes=2), published=False)
    scraped = await metrics.scrape("application/openmetrics-text; version=1.0.0")
    assert scraped.content_type.startswith("application/openmetrics-text")
    for accept in ("", "text/plain;version=x.y", "application/openmetrics-text;version=abc", ";;,="):
        scraped = await metrics.scrape(accept)
        assert scraped.body.endswith(b"# EOF\n") == ("openmetrics" in accept)
    scraped = await metrics.scrape()
    assert scraped.content_type.startswith("text/plain")
    found = samples(scraped.body)
    assert found["durable_jobs_up"][()] == 1
    for state in ("PENDING", "RUNNING", "FAILED"):
        assert found["durable_jobs_jobs"][("queue", "fast"), ("state", state)] == 0
    assert found["durable_jobs_queue_concurrency"][(("queue", QUEUE),)] == 7
    assert found["durable_jobs_queue_max_pending"][(("queue", QUEUE),)] == 50
    assert found["durable_jobs_paused"] == {(("kind", "queue"), ("name", QUEUE)): 1}
    # The one that was added, and that of the pause.
    assert found["durable_jobs_outbox_events"][(("stage", "waiting"),)] == 2
    assert 100 < found["durable_jobs_outbox_oldest_age_seconds"][()] < 1_000
    assert "durable_jobs_redis_state" not in found


def pages(urls: Urls, call: str) -> int:
    """Return how many pages a call touches, planned as a warm connection plans it."""
    with psycopg.connect(urls.application) as connection:
        for _ in range(2):
            connection.execute(call)
        row = connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {call}").fetchone()
    document = row[0] if row else []
    plan = (document if isinstance(document, list) else json.loads(document))[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.parametrize(
    "call",
    [
        "SELECT * FROM count_jobs()",
        "SELECT measure_live(ARRAY['work'], ARRAY['WORK'], '60 s', NULL)",
        "SELECT measure_recent(ARRAY['work'], ARRAY['WORK'], ARRAY['300 s', '1 s']::interval[], 5000, NULL)",
    ],
)
@pytest.mark.parametrize("analysed", [True, False], ids=["analysed", "with stale statistics"])
async def test_a_reading_touches_the_same_pages_beside_a_long_history(
    pg_store: PgJobsStore, urls: Urls, owner_connection: psycopg.Connection, call: str, analysed: bool
) -> None:
    executor = await enter(pg_store)
    for tenant in ("acme", "globex"):
        with job_tenant_scope(tenant):
            await pg_store.register_idempotent([new_job() for _ in range(150)])
    jobs = (await pg_store.claim(executor, QUEUE, 200)).jobs
    await pg_store.finish([succeeded(job) if n % 2 else failed(job) for n, job in enumerate(jobs[:150])])
    owner_connection.execute("VACUUM ANALYZE job_history")
    few = pages(urls, call)
    add_jobs(owner_connection, 30_000, timedelta(hours=1))
    if analysed:
        owner_connection.execute("VACUUM ANALYZE job_history")
    many = pages(urls, call)
    history = owner_connection.execute(
        "SELECT pg_relation_size('job_history') / current_setting('block_size')::int"
    ).fetchone()
    assert history is not None
    # A larger tree is deeper, and what others still see keeps a vacuum from marking pages; a scan reads them all.
    assert many <= few + history[0] / 4, f"{few} pages beside 150 ended jobs, {many} beside 30,150"
