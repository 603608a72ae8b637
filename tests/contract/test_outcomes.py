"""The end of an execution: fences, late and repeated results, what job code may throw at the store."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from durable_jobs.jobs import ClaimedJob, Outcome
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Note, Unwritten
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe


async def claimed_jobs(store: AnyStore, n: int = 1, **changes: object) -> tuple[UUID, list[ClaimedJob]]:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job({"n": k}, **changes) for k in range(n)])
    return executor, (await store.claim(executor, QUEUE, n)).jobs


async def test_outcomes_end_their_jobs(store: AnyStore, probe: Probe) -> None:
    _, [good, bad, final, stopped] = await claimed_jobs(store, 4)
    unwritten = await store.finish(
        [
            succeeded(good, 1),
            failed(bad),
            failed(final, "NotRetryable: no", retryable=False),
            Outcome(stopped, JobState.CANCELLED),
        ]
    )
    assert unwritten == []
    rows = {row["job_id"]: row for row in probe.jobs()}
    assert rows[good.job_id]["result"] == {"status": "OK", "value": 1}
    assert [rows[job.job_id]["state"] for job in (good, bad, final, stopped)] == [
        "SUCCEEDED",
        "FAILED",
        "FAILED",
        "CANCELLED",
    ]
    assert rows[bad.job_id]["failed_reason"] == "ValueError: no"
    assert [rows[job.job_id]["retryable"] for job in (bad, final)] == [True, False]
    assert all(row["completed_at"] >= row["started_at"] for row in rows.values())
    # The happy path costs no event.
    assert sorted(event["event"] for event in probe.events()) == [
        "jobs.job.cancelled",
        "jobs.job.failed",
        "jobs.job.failed",
    ]


async def test_a_type_that_is_not_retryable_stays_so(store: AnyStore) -> None:
    _, [job] = await claimed_jobs(store, 1, retryable=False)
    await store.finish([failed(job, retryable=True)])
    with job_tenant_scope("acme"):
        assert (await store.get(job.job_id)).is_terminal


async def test_a_repeated_outcome_is_harmless(store: AnyStore, probe: Probe) -> None:
    _, jobs = await claimed_jobs(store, 2)
    outcomes = [succeeded(jobs[0]), failed(jobs[1])]
    await store.finish(outcomes)
    before = probe.jobs(), len(probe.events())
    again = await store.finish(outcomes)
    assert sorted(again) == sorted(Unwritten(job.job_id, "repeated") for job in jobs)
    assert (probe.jobs(), len(probe.events())) == before


async def test_a_late_outcome_changes_nothing_and_is_told(store: AnyStore, probe: Probe) -> None:
    executor, [job] = await claimed_jobs(store)
    await store.release([(job, True)], "worker shut down")
    [again] = (await store.claim(executor, QUEUE, 1)).jobs
    assert again.claim_token != job.claim_token
    before = probe.jobs()
    assert await store.finish([succeeded(job)]) == [Unwritten(job.job_id, "late")]
    await store.note([Note(job, '{"current": 9}')])
    await store.release([(job, False)], "too late")
    assert probe.jobs() == before
    [event] = probe.events()
    assert (event["event"], event["severity"]) == ("jobs.job.late_result", "WARNING")
    assert event["payload"] == {"outcome": "SUCCEEDED", "state": "RUNNING"}
    assert await store.finish([failed(again)]) == []


async def test_good_outcomes_are_written_beside_a_late_one(store: AnyStore) -> None:
    _, jobs = await claimed_jobs(store, 3)
    await store.finish([failed(jobs[1])])
    unwritten = await store.finish([succeeded(job) for job in jobs])
    assert unwritten == [Unwritten(jobs[1].job_id, "late")]
    with job_tenant_scope("acme"):
        states = [(await store.get(job.job_id)).state for job in jobs]
    assert states == [JobState.SUCCEEDED, JobState.FAILED, JobState.SUCCEEDED]


async def test_an_outcome_for_a_job_that_is_gone_is_late(store: AnyStore, probe: Probe) -> None:
    _, [job] = await claimed_jobs(store)
    ghost = job._replace(job_id=uuid4())
    assert await store.finish([succeeded(ghost)]) == [Unwritten(ghost.job_id, "late")]
    assert probe.events() == []


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("ValueError: a\x00b", "ValueError: a\N{REPLACEMENT CHARACTER}b"),
        (b"caf\xe9".decode("utf-8", "surrogateescape"), "caf?"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
        ('quote " and \\ and \n', 'quote " and \\ and \n'),
    ],
)
async def test_any_error_text_is_recorded(store: AnyStore, probe: Probe, reason: str, kept: str) -> None:
    _, [job, other] = await claimed_jobs(store, 2)
    assert await store.finish([failed(job, reason), succeeded(other)]) == []
    assert [row["failed_reason"] for row in probe.jobs() if row["state"] == "FAILED"] == [kept]


async def test_an_error_text_of_five_megabytes_is_shortened_and_says_so(store: AnyStore) -> None:
    _, [job] = await claimed_jobs(store)
    await store.finish([failed(job, "x" * 5_000_000)])
    with job_tenant_scope("acme"):
        reason = (await store.get(job.job_id)).failed_reason
    assert reason is not None
    assert len(reason) == 4_000
    assert reason.endswith("xxx ... (5,000,000 characters)")


async def test_an_event_never_carries_a_payload(store: AnyStore, probe: Probe) -> None:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job({"secret": "hunter2"})])
    [job] = (await store.claim(executor, QUEUE, 1)).jobs
    await store.finish([failed(job, "ValueError: " + "y" * 3_000)])
    [event] = probe.events()
    assert "hunter2" not in json.dumps(event["payload"])
    assert len(event["payload"]["reason"]) == 500
    assert event["payload"].keys() == {
        "jobType",
        "queue",
        "state",
        "reason",
        "retryable",
        "retryCount",
        "maxRetries",
        "correlationId",
        "rootJobId",
    }


async def test_released_jobs_wait_again_or_fail_and_are_not_charged(store: AnyStore, probe: Probe) -> None:
    executor, [again, no_more, cancelled] = await claimed_jobs(store, 3)
    with job_tenant_scope("acme"):
        await store.cancel(cancelled.job_id)
    await store.release([(again, True), (no_more, False), (cancelled, True)], "worker shut down")
    rows = {row["job_id"]: row for row in probe.jobs()}
    waiting = rows[again.job_id]
    assert (waiting["state"], waiting["claim_token"], waiting["executor_id"]) == ("PENDING", None, None)
    assert (rows[no_more.job_id]["state"], rows[no_more.job_id]["failed_reason"]) == (
        "FAILED",
        "worker shut down",
    )
    assert rows[cancelled.job_id]["state"] == "CANCELLED"
    assert {row["crash_count"] for row in rows.values()} == {0}
    [reclaimed] = (await store.claim(executor, QUEUE, 9)).jobs
    assert reclaimed.job_id == again.job_id


async def test_notes_are_kept_while_the_job_runs(store: AnyStore) -> None:
    _, [job, other] = await claimed_jobs(store, 2)
    task_run_id = uuid4()
    await store.note([Note(job, '{"current": 1}'), Note(other, task_run_id=task_run_id)])
    await store.note([Note(job, '{"current": 2, "message": "a\\u0000b"}')])
    await store.finish([succeeded(job), succeeded(other)])
    await store.note([Note(job, '{"current": 3}')])
    with job_tenant_scope("acme"):
        assert (await store.get(job.job_id)).progress == {
            "current": 2,
            "message": "a\N{REPLACEMENT CHARACTER}b",
        }
        assert (await store.get(other.job_id)).task_run_id == task_run_id


async def test_a_number_that_json_does_not_know_spoils_no_note(store: AnyStore) -> None:
    _, [job, other] = await claimed_jobs(store, 2)
    await store.note([Note(job, '{"current": NaN}'), Note(other, '{"current": 1}')])
    with job_tenant_scope("acme"):
        assert (await store.get(job.job_id)).progress == {"current": None}
        assert (await store.get(other.job_id)).progress == {"current": 1}


async def test_an_executor_sees_what_it_holds(store: AnyStore) -> None:
    executor, jobs = await claimed_jobs(store, 2, timeout=timedelta(hours=1))
    with job_tenant_scope("acme"):
        await store.cancel(jobs[0].job_id)
    held = {one.job_id: one for one in await store.held(executor)}
    assert held.keys() == {job.job_id for job in jobs}
    assert {one.claim_token for one in held.values()} == {job.claim_token for job in jobs}
    assert held[jobs[0].job_id].cancel_requested
    assert not held[jobs[1].job_id].cancel_requested
    assert not held[jobs[0].job_id].overdue
    assert await store.held(uuid4()) == []


async def test_what_is_past_its_deadline_fails_for_whoever_looks(store: AnyStore, probe: Probe) -> None:
    _, jobs = await claimed_jobs(store, 3, timeout=timedelta(seconds=90))
    deadline = jobs[0].deadline_at
    margin = timedelta(seconds=5)
    assert await store.fail_overdue(margin=margin, now=deadline + margin) == []
    later = deadline + margin + timedelta(milliseconds=1)
    first = await store.fail_overdue(margin=margin, limit=2, now=later)
    rest = await store.fail_overdue(margin=margin, limit=2, now=later)
    assert (len(first), len(rest)) == (2, 1)
    rows = {row["job_id"]: row for row in probe.jobs()}
    assert rows[jobs[1].job_id]["state"] == "FAILED"
    assert rows[jobs[1].job_id]["failed_reason"] == "timed out after 90 s"
    assert rows[jobs[1].job_id]["completed_at"] == later
    assert (await store.finish([succeeded(jobs[1])]))[0].why == "late"


async def test_what_does_not_stop_when_asked_loses_its_fence(store: AnyStore, probe: Probe) -> None:
    executor, [job] = await claimed_jobs(store)
    with job_tenant_scope("acme"):
        asked_at = (await store.cancel(job.job_id)).cancel_requested_at
    assert asked_at is not None
    margin = timedelta(seconds=30)
    assert await store.fail_overdue(margin=margin, now=asked_at + margin) == []
    heart = store.heart(executor)
    assert await asyncio.to_thread(heart.must_stop, [job.claim_token])
    heart.close()
    later = asked_at + margin + timedelta(milliseconds=1)
    assert await store.fail_overdue(margin=margin, now=later) == [job.job_id]
    [row] = probe.jobs()
    assert (row["state"], row["failed_reason"]) == ("CANCELLED", None)
    assert (await store.finish([succeeded(job)]))[0].why == "late"


async def test_nothing_has_to_stop_while_all_is_in_order(store: AnyStore) -> None:
    executor, jobs = await claimed_jobs(store, 3)
    heart = store.heart(executor)
    tokens = [job.claim_token for job in jobs]
    assert not await asyncio.to_thread(heart.must_stop, tokens)
    # What has ended is not held any more, and that is in order too.
    await store.finish([succeeded(jobs[0])])
    assert not await asyncio.to_thread(heart.must_stop, tokens[1:])
    assert await asyncio.to_thread(heart.must_stop, [uuid4()])
    heart.close()


async def test_overdue_shows_in_the_executors_own_audit(store: AnyStore) -> None:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent(
            [new_job(timeout=timedelta(minutes=1), run_at=datetime(2024, 1, 1, tzinfo=UTC))]
        )
    await store.claim(executor, QUEUE, 1, now=datetime.now(UTC) - timedelta(minutes=2))
    assert [one.overdue for one in await store.held(executor)] == [True]
