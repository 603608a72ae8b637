"""Failed jobs: one retry each, the limit, resubmission, cancelling, orphans."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from durable_jobs.errors import JobNotFound, NotAllowed, QueueFull
from durable_jobs.jobs import Job
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Decision
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe


async def failed_job(store: AnyStore, *, retryable: bool = True, **changes: object) -> UUID:
    executor = await enter(store)
    request = new_job({"n": 1}, **changes)
    with job_tenant_scope("acme"):
        await store.register_idempotent([request])
    claimed = await store.claim_job(executor, "acme", request.job_id)
    assert claimed is not None
    await store.finish([failed(claimed, retryable=retryable)])
    return request.job_id


async def test_a_failed_job_stays_failed_by_itself(store: AnyStore) -> None:
    job_id = await failed_job(store)
    executor = await enter(store)
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    with job_tenant_scope("acme"):
        assert (await store.get(job_id)).state is JobState.FAILED


async def test_a_retry_is_a_new_job_with_the_same_request(store: AnyStore, probe: Probe) -> None:
    options = {"idempotency_key": "k", "correlation_id": "trace", "priority": 7, "submitted_by": "ann"}
    job_id = await failed_job(store, **options)
    with job_tenant_scope("acme"):
        child = await store.retry(job_id, max_pending=None, by="bob")
        parent = await store.get(job_id)
    assert (child.state, child.retry_count, child.payload) == (JobState.PENDING, 1, {"n": 1})
    assert (child.parent_job_id, child.root_job_id) == (job_id, job_id)
    assert options == {name: getattr(child, name) for name in options}
    assert (parent.state, parent.retry_child_id) == (JobState.RETRIED, child.job_id)
    assert parent.failed_reason == "ValueError: no"
    assert parent.completed_at is not None
    told = probe.events()[-1]
    assert (told["event"], told["job_id"]) == ("jobs.job.retried", job_id)
    assert told["payload"]["retryChildId"] == str(child.job_id)
    assert told["payload"]["by"] == "bob"


async def test_a_job_has_one_child_however_often_it_is_retried(store: AnyStore, probe: Probe) -> None:
    job_id = await failed_job(store)
    with job_tenant_scope("acme"):
        children = {(await store.retry(job_id, max_pending=None)).job_id for _ in range(3)}
    assert len(children) == 1
    assert len(probe.jobs()) == 2


async def test_at_the_limit_a_job_is_abandoned(store: AnyStore, probe: Probe) -> None:
    job_id = await failed_job(store, max_retries=1)
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.retry(job_id, max_pending=None)
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        await store.finish([failed(claimed)])
        completed_at = (await store.get(claimed.job_id)).completed_at
        abandoned = await store.retry(claimed.job_id, max_pending=None)
    assert (abandoned.job_id, abandoned.state) == (claimed.job_id, JobState.ABANDONED)
    assert abandoned.completed_at == completed_at
    told = probe.events()[-1]
    assert (told["event"], told["severity"]) == ("jobs.job.abandoned", "CRITICAL")
    with job_tenant_scope("acme"):
        assert await store.retry(claimed.job_id, max_pending=None) == abandoned
    assert probe.events()[-1] == told


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUCCEEDED", "CANCELLED"])
async def test_only_failed_jobs_are_retried(store: AnyStore, probe: Probe, state: str) -> None:
    executor = await enter(store)
    request = new_job()
    with job_tenant_scope("acme"):
        await store.register_idempotent([request])
        if state == "CANCELLED":
            await store.cancel(request.job_id)
        elif state != "PENDING":
            [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
            if state == "SUCCEEDED":
                await store.finish([succeeded(claimed)])
        before = probe.jobs()
        with pytest.raises(
            NotAllowed, match=f"{request.job_id} cannot be retried: it is {state}, not FAILED"
        ):
            await store.retry(request.job_id, max_pending=None)
        with pytest.raises(NotAllowed, match=f"is {state}: only FAILED and ABANDONED"):
            await store.resubmit(request.job_id, max_pending=None)
    assert probe.jobs() == before


async def test_a_final_failure_is_not_retried_but_may_be_resubmitted(store: AnyStore, probe: Probe) -> None:
    job_id = await failed_job(store, retryable=False)
    [before] = probe.jobs()
    with job_tenant_scope("acme"):
        with pytest.raises(NotAllowed, match="not retryable"):
            await store.retry(job_id, max_pending=None)
        root = await store.resubmit(job_id, max_pending=None, by="bob")
    assert (root.replay_of, root.root_job_id, root.parent_job_id) == (job_id, root.job_id, None)
    assert (root.retry_count, root.retryable, root.payload) == (0, True, {"n": 1})
    assert probe.jobs()[0] == before


async def test_a_resubmission_is_not_doubled_while_it_lives(store: AnyStore) -> None:
    job_id = await failed_job(store)
    executor = await enter(store)
    with job_tenant_scope("acme"):
        first = await store.resubmit(job_id, max_pending=None)
        assert (await store.resubmit(job_id, max_pending=None)).job_id == first.job_id
        with pytest.raises(NotAllowed, match="was resubmitted"):
            await store.retry(job_id, max_pending=None)
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        assert (await store.resubmit(job_id, max_pending=None)).job_id == first.job_id
        await store.finish([failed(claimed)])
        assert (await store.resubmit(job_id, max_pending=None)).job_id != first.job_id


async def test_retries_and_resubmissions_respect_the_bound(store: AnyStore, probe: Probe) -> None:
    job_id = await failed_job(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job(max_pending=1)])
        before = probe.jobs()
        for call in (store.retry, store.resubmit):
            with pytest.raises(QueueFull, match="'work' is full: it may hold 1 waiting"):
                await call(job_id, max_pending=1)
        assert probe.jobs() == before
        await store.retry(job_id, max_pending=2)
    assert probe.counted(QUEUE) == 2


async def test_cancelling(store: AnyStore, probe: Probe) -> None:
    executor = await enter(store)
    waiting, running = new_job(max_pending=5), new_job(priority=1)
    dead_letter = await failed_job(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([running])
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        await store.register_idempotent([waiting])
        assert (await store.cancel(waiting.job_id, by="ann")).state is JobState.CANCELLED
        assert probe.counted(QUEUE) == 0
        assert (await store.claim(executor, QUEUE, 10)).jobs == []
        asked = await store.cancel(running.job_id)
        assert (asked.state, asked.cancel_requested_at is not None) == (JobState.RUNNING, True)
        assert (await store.cancel(running.job_id)).cancel_requested_at == asked.cancel_requested_at
        before = (await store.get(dead_letter)).completed_at
        cancelled = await store.cancel(dead_letter)
        assert cancelled.state is JobState.CANCELLED
        assert cancelled.completed_at is not None
        assert before is not None
        assert cancelled.completed_at > before
        await store.finish([succeeded(claimed)])
        for job_id in (waiting.job_id, running.job_id, dead_letter):
            with pytest.raises(NotAllowed, match="final"):
                await store.cancel(job_id)
        with pytest.raises(JobNotFound):
            await store.cancel(uuid4())
    assert [e["event"] for e in probe.events()].count("jobs.job.cancelled") == 2


def replay(job: Job) -> Decision:
    return Decision(replay=True)


def give_up(job: Job) -> Decision:
    return Decision(replay=False)


async def orphans(store: AnyStore, n: int, tenant: str = "acme", **changes: object) -> UUID:
    executor = await enter(store)
    with job_tenant_scope(tenant):
        await store.register_idempotent([new_job(**changes) for _ in range(n)])
    await store.claim(executor, QUEUE, n)
    return executor


async def test_orphans_are_settled_in_small_batches_for_one_tenant(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 12)
    alive = await orphans(store, 3)
    other = await orphans(store, 2, "other")
    first = await store.settle_orphans("acme", [dead, other], give_up, max_crashes=3)
    rest = await store.settle_orphans("acme", [dead, other], give_up, max_crashes=3)
    assert (len(first), len(rest)) == (10, 2)
    assert await store.settle_orphans("acme", [dead, other], give_up, max_crashes=3) == {}
    rows = probe.jobs()
    assert [row["state"] for row in rows if row["executor_id"] in (alive, other)] == ["RUNNING"] * 5
    settled = [row for row in rows if row["executor_id"] == dead]
    assert {(r["state"], r["failed_reason"], r["crash_count"]) for r in settled} == {("FAILED", "stalled", 1)}
    assert [(e["event"], e["severity"]) for e in probe.events()] == [("jobs.job.stalled", "WARNING")] * 12


async def test_orphans_that_are_to_be_skipped_are_left_alone(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 3)
    skip = {probe.jobs()[1]["job_id"]}
    settled = await store.settle_orphans("acme", [dead], give_up, max_crashes=3, skip=skip)
    assert len(settled) == 2
    assert [row["job_id"] for row in probe.jobs() if row["state"] == "RUNNING"] == list(skip)


async def test_jobs_of_an_executor_that_nobody_knows_are_orphans(store: AnyStore) -> None:
    dead = await orphans(store, 1)
    await store.leave_executor(dead)
    assert len(await store.settle_orphans("acme", [], give_up, max_crashes=3)) == 1


async def test_an_orphan_that_may_run_again_waits_alone(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 1, max_pending=5)
    executor = await enter(store)
    [(job_id, state)] = (await store.settle_orphans("acme", [dead], replay, max_crashes=3)).items()
    assert state is JobState.PENDING
    [row] = probe.jobs()
    assert (row["claim_token"], row["executor_id"], row["deadline_at"]) == (None, None, None)
    # A suspect takes nobody with it: a shift leaves it alone, a run of its own claims it.
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    assert await store.claim_job(executor, "acme", job_id) is not None
    assert probe.counted(QUEUE) == 0


async def test_a_job_that_crashes_too_often_is_given_up_for_good(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 1)
    for crash in (1, 2, 3):
        settled = await store.settle_orphans("acme", [dead], replay, max_crashes=3)
        [(job_id, state)] = settled.items()
        assert state is (JobState.PENDING if crash < 3 else JobState.FAILED)
        if crash < 3:
            await store.claim_job(dead, "acme", job_id)
    [row] = probe.jobs()
    assert (row["crash_count"], row["retryable"]) == (3, False)
    assert [e["severity"] for e in probe.events()] == ["WARNING", "WARNING", "CRITICAL"]


async def test_a_cancelled_orphan_is_cancelled(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 1)
    with job_tenant_scope("acme"):
        await store.cancel(probe.jobs()[0]["job_id"])
    settled = await store.settle_orphans("acme", [dead], replay, max_crashes=3)
    assert list(settled.values()) == [JobState.CANCELLED]


async def test_the_decision_may_give_its_own_reason(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 1)
    unreadable = Decision(replay=False, reason="InvalidPayload: a\x00", retryable=False)
    await store.settle_orphans("acme", [dead], lambda _: unreadable, max_crashes=3)
    [row] = probe.jobs()
    assert (row["failed_reason"], row["retryable"]) == ("InvalidPayload: a\N{REPLACEMENT CHARACTER}", False)


async def test_a_decision_that_fails_changes_nothing(store: AnyStore, probe: Probe) -> None:
    dead = await orphans(store, 3)
    before = probe.jobs()
    asked: list[UUID] = []

    def decide(job: Job) -> Decision:
        asked.append(job.job_id)
        if len(asked) == 2:
            raise RuntimeError("a fault of the decision")
        return Decision(replay=True)

    with pytest.raises(RuntimeError, match="a fault"):
        await store.settle_orphans("acme", [dead], decide, max_crashes=3)
    assert probe.jobs() == before


async def test_a_retry_of_a_suspect_is_a_suspect(store: AnyStore) -> None:
    dead = await orphans(store, 1)
    executor = await enter(store)
    [job_id] = await store.settle_orphans("acme", [dead], give_up, max_crashes=3)
    with job_tenant_scope("acme"):
        child = await store.retry(job_id, max_pending=None)
    assert child.crash_count == 1
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    assert await store.claim_job(executor, "acme", child.job_id) is not None


async def test_a_later_retry_may_be_delayed(store: AnyStore) -> None:
    job_id = await failed_job(store)
    executor = await enter(store)
    with job_tenant_scope("acme"):
        later = (await store.get(job_id)).created_at + timedelta(minutes=5)
        child = await store.retry(job_id, max_pending=None, run_at=later)
    assert child.run_at == later
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    assert len((await store.claim(executor, QUEUE, 10, now=later)).jobs) == 1
