"""The dead-letter pass and a person's retry, end to end: real Postgres, real Prefect, real flow runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.client.schemas.sorting import ArtifactSort
from prefect.exceptions import ParameterTypeError

from durable_jobs.dead_letters.health import Thresholds
from durable_jobs.dead_letters.retrying import Retrier, TenantRetries
from durable_jobs.errors import BadInput, NotAllowed
from durable_jobs.flows.execute_jobs import execute_jobs
from durable_jobs.flows.jobs_dlq_retry import jobs_dlq_retry
from durable_jobs.flows.jobs_reconcile import jobs_reconcile
from durable_jobs.flows.retry_jobs import retry_jobs
from durable_jobs.loading import load_registry
from durable_jobs.registration import prepare, register_all
from durable_jobs.settings import Settings
from durable_jobs.states import JobState
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tasks.dead_letters import PassFailed
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import Urls, open_store
from tests.contract.test_dead_letters import failed_jobs
from tests.contract.test_failed_jobs import failed_job
from tests.support import letter_types
from tests.support.probes import PgProbe

pytestmark = [pytest.mark.usefixtures("prefect_harness"), pytest.mark.timeout(300)]
TYPES = "tests.support.letter_types"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, database_url: str) -> None:
    """The database and the job types of these tests."""
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", database_url)
    monkeypatch.setenv("DURABLE_JOBS_MODULES", TYPES)
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "development")


@pytest.fixture
def rows(owner_connection: psycopg.Connection) -> PgProbe:
    """Looks at every row."""
    return PgProbe(owner_connection)


async def artifact(key: str) -> str:
    """Text of the newest artifact of a key."""
    wanted = ArtifactFilter(key=ArtifactFilterKey(any_=[key]))
    async with get_client() as client:
        found = await client.read_artifacts(artifact_filter=wanted, sort=ArtifactSort.CREATED_DESC, limit=1)
    return str(found[0].data)


def of_root(rows: PgProbe, root: UUID) -> list[dict[str, Any]]:
    return [row for row in rows.jobs() if row["root_job_id"] == root]


async def test_t8_to_t13_a_failed_job_goes_its_way_to_abandoned(pg_store: PgJobsStore, rows: PgProbe) -> None:
    """T-8 listed, T-9 a child with its parent, T-10 RETRIED, T-11 ABANDONED, T-12 not listed, T-13 by flow runs."""
    registry = load_registry([TYPES])
    with job_tenant_scope("acme"):
        job = (await register_all(pg_store, [prepare(registry, Settings.load(), "WORK", {"n": 1})]))[0].job
    final = await failed_job(pg_store, retryable=False)
    await execute_jobs(until_empty=True, queues=["work"])
    listed = [found.job_id for found in await pg_store.find_failed("acme")]
    assert listed == [job.job_id], "T-8; and T-12: what is not retryable is not listed"
    for attempt in (1, 2, 3):
        counts = await jobs_dlq_retry()
        assert counts is not None
        assert (counts["retried"], counts["abandoned"]) == (1, 0)
        chain = of_root(rows, job.job_id)
        assert [r["state"] for r in chain] == ["RETRIED"] * attempt + ["PENDING"]
        assert chain[-1]["parent_job_id"] == chain[-2]["job_id"]
        assert chain[-2]["retry_child_id"] == chain[-1]["job_id"]
        await execute_jobs(until_empty=True, queues=["work"])
    counts = await jobs_dlq_retry()
    assert counts is not None
    assert (counts["retried"], counts["abandoned"]) == (0, 1)
    last = of_root(rows, job.job_id)[-1]
    assert (last["state"], last["retry_count"], last["failed_reason"]) == ("ABANDONED", 3, "ValueError: no 1")
    assert (await jobs_dlq_retry() or {})["abandoned"] == 0
    assert len(of_root(rows, job.job_id)) == 4
    events = Counter(e["event"] for e in rows.events())
    assert (events["jobs.job.retried"], events["jobs.job.abandoned"], events["jobs.retry.completed"]) == (
        3,
        1,
        5,
    )
    assert next(r for r in rows.jobs() if r["job_id"] == final)["state"] == "FAILED"


async def test_dlq1_one_child_whatever_races(pg_store: PgJobsStore, rows: PgProbe, database_url: str) -> None:
    [job_id] = await failed_jobs(pg_store, 1)
    async with open_store(database_url, pool_size=12) as other:

        async def by_a_person() -> UUID | None:
            with job_tenant_scope("acme"):
                try:
                    return (await other.retry(job_id, max_pending=None)).job_id
                except NotAllowed:
                    return None

        answers = await asyncio.gather(
            *(by_a_person() for _ in range(20)), jobs_dlq_retry(), jobs_dlq_retry()
        )
    parent, child = rows.jobs()
    assert {answer for answer in answers if isinstance(answer, UUID)} <= {child["job_id"]}
    assert (parent["state"], parent["retry_child_id"]) == ("RETRIED", child["job_id"])
    assert [e["event"] for e in rows.events()].count("jobs.job.retried") == 1


async def test_dlq1_passes_that_no_lock_keeps_apart_share_the_letters(
    pg_store: PgJobsStore, rows: PgProbe, database_url: str
) -> None:
    for tenant in ("a", "b"):
        await failed_jobs(pg_store, 120, tenant)
    at_limit = await failed_jobs(pg_store, 30, "b", max_retries=0)
    registry = load_registry([TYPES])

    async def a_pass() -> list[TenantRetries]:
        async with open_store(database_url) as store:
            retrier = Retrier(store, registry, by="test")
            return [await retrier.retry_tenant(tenant, limit=200) for tenant in ("a", "b")]

    passes = await asyncio.gather(*(a_pass() for _ in range(4)))
    done = [one for of_pass in passes for one in of_pass]
    assert [one.fault for one in done if one.fault is not None] == []
    # What one pass held was left to it by the others, so the rest may take another pass.
    done += [await Retrier(pg_store, registry).retry_tenant(tenant, limit=200) for tenant in ("a", "b")]
    retried = Counter(r.letter.job_id for one in done for r in one.retried)
    assert set(retried.values()) == {1}
    assert len(retried) == 240
    assert sum(one.abandoned.total() for one in done) == len(at_limit)
    states = Counter(row["state"] for row in rows.jobs())
    assert states == {"RETRIED": 240, "PENDING": 240, "ABANDONED": 30}
    told = [e for e in rows.events() if e["event"] in ("jobs.job.retried", "jobs.job.abandoned")]
    assert sum(e["payload"].get("jobs", 1) for e in told) == 270


async def test_dlq3_what_cannot_be_executed_goes_aside_and_the_rest_proceeds(
    pg_store: PgJobsStore, rows: PgProbe
) -> None:
    gone = await failed_jobs(pg_store, 1, job_type="GONE")
    queueless = await failed_jobs(pg_store, 1, queue="nowhere")
    [unfit] = await failed_jobs(pg_store, 1, payload='{"n": "many"}')
    newer = await failed_jobs(pg_store, 1, payload_version=9)
    fine = await failed_jobs(pg_store, 3)
    counts = await jobs_dlq_retry(per_tenant=3)
    assert counts is not None
    assert (counts["retried"], counts["notRetryable"]) == (3, 4)
    state = {row["job_id"]: row for row in rows.jobs()}
    for job_id in [*gone, *queueless, unfit, *newer]:
        assert (state[job_id]["state"], state[job_id]["retryable"]) == ("FAILED", False)
    assert "job type 'GONE' is not declared any more" in state[gone[0]]["failed_reason"]
    assert "ValueError: no (not retried: InvalidPayload" in state[unfit]["failed_reason"]
    assert {state[job_id]["state"] for job_id in fine} == {"RETRIED"}
    assert await pg_store.find_failed("acme") == []
    text = await artifact("dead-letters")
    assert f"`{gone[0]}`" in text
    assert "not retryable: job type 'GONE'" in text
    assert "data:image/svg+xml" in text


async def test_caps_for_each_tenant_and_a_full_queue(pg_store: PgJobsStore, rows: PgProbe) -> None:
    for tenant in ("a", "b"):
        await failed_jobs(pg_store, 60, tenant)
    await failed_jobs(pg_store, 40, "c", job_type="NARROW", queue="narrow")
    counts = await jobs_dlq_retry()
    assert counts is not None
    waiting = Counter(r["tenant_id"] for r in rows.jobs() if r["state"] == "PENDING")
    assert waiting == {"a": 50, "b": 50, "c": 30}
    assert counts["fullQueues"] == ["narrow"]
    delays = {
        r["run_at"] - r["created_at"]
        for r in rows.jobs()
        if r["state"] == "PENDING" and r["queue"] == "narrow"
    }
    assert delays == {timedelta(minutes=1)}, "the type's backoff"


async def test_mass_abandonment_is_one_event_for_each_tenant(pg_store: PgJobsStore, rows: PgProbe) -> None:
    await failed_jobs(pg_store, 2)
    with psycopg.connect(rows._connection.info.dsn, password=rows._connection.info.password) as owner:
        owner.execute(
            "INSERT INTO job_history (job_id, tenant_id, job_type, queue, state, payload, payload_hash, root_job_id,"
            " failed_reason, completed_at, max_retries) SELECT i, 'acme', 'WORK', 'work', 'FAILED', '{}', 'h', i,"
            " 'ValueError', now(), 0 FROM (SELECT gen_random_uuid() AS i FROM generate_series(1, 5000)) x"
        )
    counts = await jobs_dlq_retry()
    assert counts is not None
    assert (counts["abandoned"], counts["abandonedTypes"]) == (5_000, {"WORK": 5_000})
    told = [e for e in rows.events() if e["event"] == "jobs.job.abandoned"]
    assert [(e["payload"]["jobs"], e["severity"]) for e in told] == [(5_000, "CRITICAL")]
    # 5,000 before the pass: that is told too.
    assert "jobs.dlq.critical" in [e["event"] for e in rows.events()]


async def test_thresholds_warn_and_alarm(pg_store: PgJobsStore, rows: PgProbe) -> None:
    await failed_jobs(pg_store, 3)
    await jobs_dlq_retry(thresholds=Thresholds(warning_count=3, critical_count=4))
    await failed_jobs(pg_store, 4)
    await jobs_dlq_retry(thresholds=Thresholds(warning_count=3, critical_count=4))
    told = [(e["event"], e["severity"]) for e in rows.events() if e["event"].startswith("jobs.dlq")]
    assert told == [("jobs.dlq.warning", "WARNING"), ("jobs.dlq.critical", "CRITICAL")]


async def test_one_tenants_fault_is_visible_and_stops_nobody(
    pg_store: PgJobsStore, rows: PgProbe, new_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Urls = new_database()
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", own.application)
    async with open_store(own.application) as store:
        bad = (await failed_jobs(store, 3, "bad"))[1]
        good = await failed_jobs(store, 2, "good")
        with psycopg.connect(own.admin, autocommit=True) as owner:
            owner.execute(f"ALTER TABLE job_history ADD CHECK (state <> 'RETRIED' OR job_id <> '{bad}')")
            with pytest.raises(PassFailed, match=r"tenant 'bad'.*CheckViolation"):
                await jobs_dlq_retry()
            state = {row["job_id"]: row["state"] for row in PgProbe(owner).jobs()}
    assert {state[job_id] for job_id in good} == {"RETRIED"}
    # Its other jobs go on as well.
    assert Counter(s for j, s in state.items() if j not in good) == {"RETRIED": 2, "FAILED": 1, "PENDING": 4}


async def test_no_tenant_seen_although_there_are_jobs_is_a_failure(
    new_database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Urls = new_database()
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", own.application)
    async with open_store(own.application) as store:
        await failed_jobs(store, 2)
        with psycopg.connect(own.admin, autocommit=True) as owner:
            owner.execute("DROP POLICY enumerate_tenants ON job_history")
            owner.execute("SELECT pg_stat_force_next_flush()")
            owner.execute("ANALYZE job_history")
        with pytest.raises(PassFailed, match="no tenant is seen although"):
            await jobs_dlq_retry()


async def test_pay2_values_come_back_in_the_retry_as_they_were(pg_store: PgJobsStore, rows: PgProbe) -> None:
    letter_types.SEEN.clear()
    registry = load_registry([TYPES])
    values = letter_types.VALUES
    with job_tenant_scope("acme"):
        await register_all(pg_store, [prepare(registry, Settings.load(), "ONCE", values)])
    await execute_jobs(until_empty=True, queues=["work"])
    await jobs_dlq_retry()
    await execute_jobs(until_empty=True, queues=["work"])
    assert [values, values] == letter_types.SEEN
    parent, child = rows.jobs()
    assert child["state"] == "SUCCEEDED"
    assert parent["payload_hash"] == child["payload_hash"]


async def test_pre6_a_child_runs_although_its_parents_key_is_known(
    pg_store: PgJobsStore, rows: PgProbe
) -> None:
    registry = load_registry([TYPES])
    with job_tenant_scope("acme"):
        request = prepare(registry, Settings.load(), "WORK", {}, idempotency_key="order-7")
        await register_all(pg_store, [request])
    await execute_jobs(until_empty=True, queues=["work"])
    await jobs_dlq_retry()
    await execute_jobs(until_empty=True, queues=["work"])
    _, child = rows.jobs()
    assert (child["idempotency_key"], child["claim_count"], child["state"]) == ("order-7", 1, "FAILED")
    with job_tenant_scope("acme"):
        again = await register_all(pg_store, [request._replace(job_id=uuid4())])
    assert (again[0].created, again[0].job.job_id) == (False, child["job_id"])


async def test_pre4_an_empty_form_never_means_everything(pg_store: PgJobsStore, rows: PgProbe) -> None:
    await failed_jobs(pg_store, 2)
    with pytest.raises(BadInput, match="say which jobs"):
        await retry_jobs()
    with pytest.raises(BadInput, match="say which jobs"):
        await retry_jobs(dry_run=False)
    with pytest.raises(BadInput, match="empty list"):
        await retry_jobs(job_ids=[], dry_run=False)
    for wrong in ({"dry_run": "false"}, {"limit": "10"}, {"job_ids": "all"}, {"dry_run": None}):
        with pytest.raises(ParameterTypeError):
            await retry_jobs(**{"job_type": "WORK", **wrong})
    with pytest.raises(ParameterTypeError):
        await jobs_dlq_retry(per_tenant="50")  # type: ignore[arg-type] -- what an automation would send
    assert {row["state"] for row in rows.jobs()} == {"FAILED"}


async def test_a_person_looks_first_and_then_retries(pg_store: PgJobsStore, rows: PgProbe) -> None:
    jobs = await failed_jobs(pg_store, 3, "default")
    await failed_jobs(pg_store, 1, "acme")
    looked = await retry_jobs(reason_like="valueerror")
    assert looked == {"dryRun": True, "fitting": 3}
    assert "nothing was changed" in await artifact("retry-jobs")
    assert {row["state"] for row in rows.jobs()} == {"FAILED"}
    done = await retry_jobs(job_ids=[str(jobs[0])], dry_run=False)  # type: ignore[list-item] -- as JSON brings it
    assert done["retried"] == 1
    retried = next(row for row in rows.jobs() if row["job_id"] == jobs[0])
    with job_tenant_scope("default"):
        child = await pg_store.get(retried["retry_child_id"])
    assert child.state is JobState.PENDING
    told = next(e for e in rows.events() if e["event"] == "jobs.job.retried")
    assert told["payload"]["by"].startswith("flow run ")


async def test_the_reconciler_publishes_what_no_shift_did(pg_store: PgJobsStore, rows: PgProbe) -> None:
    await failed_jobs(pg_store, 2)
    await jobs_reconcile()
    assert [e["posted_at"] is not None for e in rows.events() if e["event"] == "jobs.job.failed"] == [
        True
    ] * 2


async def test_evt2_our_own_flows_are_no_dead_letters(pg_store: PgJobsStore, rows: PgProbe) -> None:
    await failed_jobs(pg_store, 1)
    before = len(rows.jobs())
    with pytest.raises(BadInput):
        await retry_jobs()
    assert len(rows.jobs()) == before
    assert not any(e["event"] == "jobs.job.failed" for e in rows.events()[1:])
