"""Dead letters in sets: retried within bounds, given up at the limit, refused with a reason, found and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from durable_jobs.dead_letters.store import LetterFilter, LetterStore, LockedLetter, Verdict
from durable_jobs.errors import JobNotFound
from durable_jobs.states import JobState
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.contract.test_failed_jobs import failed_job
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe

NO_BOUND: dict[str, int | None] = {QUEUE: None}
# What a retry may and must change; in everything else child and parent are equal.
OF_ITS_OWN = {
    "job_id", "state", "run_at", "failed_reason", "retry_count", "claim_order", "parent_job_id",
    "retry_child_id", "claim_token", "claim_count", "executor_id", "pending_shard", "deadline_at",
    "created_at", "started_at", "completed_at", "updated_at",
}  # fmt: skip


def retry(letter: LockedLetter) -> Verdict:
    return Verdict()


async def failed_jobs(store: AnyStore, n: int, tenant: str = "acme", **changes: object) -> list[UUID]:
    executor = await enter(store)
    requests = [new_job({"n": k}, **changes) for k in range(n)]
    with job_tenant_scope(tenant):
        await store.register_idempotent(requests)
    claimed = [await store.claim_job(executor, tenant, request.job_id) for request in requests]
    await store.finish([failed(job) for job in claimed if job is not None])
    return [request.job_id for request in requests]


async def test_both_stores_keep_dead_letters(store: AnyStore) -> None:
    assert isinstance(store, LetterStore)


async def test_a_child_equals_its_parent_and_stands_beside_retried(store: AnyStore, probe: Probe) -> None:
    job_id = await failed_job(
        store,
        idempotency_key="k",
        correlation_id="trace",
        priority=7,
        submitted_by="ann",
        max_retries=5,
        timeout=timedelta(minutes=7),
        payload_version=4,
    )
    [retried] = await store.retry_failed("acme", retry, NO_BOUND, by="bob")
    parent, child = probe.jobs()
    assert (retried.outcome, retried.child_id) == ("retried", child["job_id"])
    assert {k: v for k, v in parent.items() if k not in OF_ITS_OWN} == {
        k: v for k, v in child.items() if k not in OF_ITS_OWN
    }
    assert (parent["state"], parent["retry_child_id"]) == ("RETRIED", child["job_id"])
    assert (child["state"], child["retry_count"], child["parent_job_id"]) == ("PENDING", 1, job_id)
    told = probe.events()[-1]
    assert (told["event"], told["job_id"], told["payload"]["by"]) == ("jobs.job.retried", job_id, "bob")
    assert (told["payload"]["retryChildId"], told["payload"]["state"]) == (str(child["job_id"]), "FAILED")


async def test_a_child_of_a_resubmission_keeps_where_it_came_from(store: AnyStore, probe: Probe) -> None:
    first = await failed_job(store, retryable=False)
    executor = await enter(store)
    with job_tenant_scope("acme"):
        root = await store.resubmit(first, max_pending=None)
    claimed = await store.claim_job(executor, "acme", root.job_id)
    assert claimed is not None
    await store.finish([failed(claimed)])
    await store.retry_failed("acme", retry, NO_BOUND)
    assert [row["origin_job_id"] for row in probe.jobs()] == [None, first, first]


async def test_only_what_is_failed_retryable_below_its_limit_and_not_resubmitted(store: AnyStore) -> None:
    [again] = await failed_jobs(store, 1)
    await failed_job(store, retryable=False)
    await failed_jobs(store, 1, max_retries=0)
    [resubmitted] = await failed_jobs(store, 1)
    await failed_jobs(store, 1, "other")
    with job_tenant_scope("acme"):
        await store.resubmit(resubmitted, max_pending=None)
    listed = [job.job_id for job in await store.find_failed("acme")]
    assert again in listed
    assert resubmitted not in listed
    assert len(listed) == 2
    assert [one.letter.job_id for one in await store.retry_failed("acme", retry, NO_BOUND)] == [again]
    assert await store.retry_failed("acme", retry, NO_BOUND) == []


async def test_the_oldest_first_and_no_more_than_asked(store: AnyStore) -> None:
    jobs = await failed_jobs(store, 5)
    batches = [await store.retry_failed("acme", retry, NO_BOUND, limit=2) for _ in range(4)]
    assert [[one.letter.job_id for one in batch] for batch in batches] == [jobs[:2], jobs[2:4], jobs[4:], []]


async def test_a_full_queue_stops_without_an_error_and_others_go_on(store: AnyStore, probe: Probe) -> None:
    await failed_jobs(store, 4)
    await failed_jobs(store, 2, queue="other")
    acted = await store.retry_failed("acme", retry, {QUEUE: 3, "other": None})
    assert Counter((one.letter.queue, one.outcome) for one in acted) == {
        (QUEUE, "retried"): 3,
        (QUEUE, "full"): 1,
        ("other", "retried"): 2,
    }
    assert probe.counted(QUEUE) == 3
    again = await store.retry_failed("acme", retry, {QUEUE: 3}, full=[QUEUE])
    assert again == []
    assert Counter(row["state"] for row in probe.jobs()) == {"PENDING": 5, "RETRIED": 5, "FAILED": 1}


@pytest.mark.parametrize("bound", [1, 7, 16, 40])
async def test_a_queue_takes_exactly_as_many_as_it_has_room_for(
    store: AnyStore, probe: Probe, bound: int
) -> None:
    await failed_jobs(store, bound + 3)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job(max_pending=bound)])
    acted = await store.retry_failed("acme", retry, {QUEUE: bound}, limit=100)
    assert Counter(one.outcome for one in acted) == Counter({"full": 4, "retried": bound - 1})
    assert probe.counted(QUEUE) == bound


async def test_what_cannot_be_executed_is_refused_with_the_reason(store: AnyStore, probe: Probe) -> None:
    gone, fine = await failed_jobs(store, 2)
    acted = await store.retry_failed(
        "acme", lambda letter: Verdict("no such type \x00" if letter.job_id == gone else None), NO_BOUND
    )
    assert {one.letter.job_id: one.outcome for one in acted} == {gone: "refused", fine: "retried"}
    row = next(row for row in probe.jobs() if row["job_id"] == gone)
    assert (row["state"], row["retryable"]) == ("FAILED", False)
    assert row["failed_reason"].startswith("ValueError: no (not retried: no such type")
    told = next(e for e in reversed(probe.events()) if e["event"] == "jobs.job.failed")
    assert (told["job_id"], told["severity"], told["payload"]["retryable"]) == (gone, "CRITICAL", False)


async def test_a_decision_that_fails_changes_nothing(store: AnyStore, probe: Probe) -> None:
    await failed_jobs(store, 3)
    before = probe.jobs()

    def decide(letter: LockedLetter) -> Verdict:
        raise RuntimeError("a fault of the decision")

    with pytest.raises(RuntimeError, match="a fault"):
        await store.retry_failed("acme", decide, NO_BOUND)
    assert probe.jobs() == before


async def test_a_retry_may_wait(store: AnyStore) -> None:
    await failed_jobs(store, 1)
    await store.retry_failed("acme", lambda _: Verdict(delay=timedelta(minutes=5)), NO_BOUND)
    executor = await enter(store)
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    later = datetime.now(UTC) + timedelta(minutes=6)
    assert len((await store.claim(executor, QUEUE, 10, now=later)).jobs) == 1


async def test_what_is_at_its_limit_is_given_up(store: AnyStore, probe: Probe) -> None:
    await failed_jobs(store, 2, max_retries=0)
    await failed_jobs(store, 1)
    assert await store.abandon_failed("acme", by="bob") == {"WORK": 2}
    assert await store.abandon_failed("acme") == {}
    assert Counter(row["state"] for row in probe.jobs()) == {"ABANDONED": 2, "FAILED": 1}
    told = [e for e in probe.events() if e["event"] == "jobs.job.abandoned"]
    assert {(e["severity"], e["payload"]["by"], e["payload"]["state"]) for e in told} == {
        ("CRITICAL", "bob", "ABANDONED")
    }
    assert len({e["job_id"] for e in told}) == 2


@pytest.mark.parametrize("kind", ["abandoned", "retried"])
async def test_many_at_once_share_one_event(store: AnyStore, probe: Probe, kind: str) -> None:
    jobs = await failed_jobs(store, 6, max_retries=0 if kind == "abandoned" else 3)
    if kind == "abandoned":
        await store.abandon_failed("acme", each=5, by="bob")
    else:
        await store.retry_failed("acme", retry, NO_BOUND, each=5, by="bob")
    [told] = [e for e in probe.events() if e["event"] == f"jobs.job.{kind}"]
    assert (told["job_id"], told["tenant_id"]) == (None, "acme")
    assert told["payload"]["jobs"] == 6
    assert told["payload"]["jobTypes"] == {"WORK": 6}
    assert set(told["payload"]["firstJobIds"]) == {str(job_id) for job_id in jobs}


FILTERS: dict[str, Callable[[UUID, datetime], LetterFilter]] = {
    "id": lambda job_id, _: LetterFilter(job_ids=(job_id,)),
    "type": lambda *_: LetterFilter(job_type="OTHER"),
    "since": lambda _, at: LetterFilter(since=at),
    "part of the reason": lambda *_: LetterFilter(reason_like="timed OUT"),
    "pattern of the reason": lambda *_: LetterFilter(reason_like="timed_out%s"),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_filters(store: AnyStore, name: str) -> None:
    await failed_jobs(store, 2)
    executor = await enter(store)
    with job_tenant_scope("acme"):
        request = new_job(job_type="OTHER")
        await store.register_idempotent([request])
        claimed = await store.claim_job(executor, "acme", request.job_id)
        assert claimed is not None
        await store.finish([failed(claimed, "timed out after 9 s")])
        completed_at = (await store.get(request.job_id)).completed_at
    assert completed_at is not None
    wanted = FILTERS[name](request.job_id, completed_at)
    assert [job.job_id for job in await store.find_failed("acme", wanted)] == [request.job_id]
    [retried] = await store.retry_failed("acme", retry, NO_BOUND, wanted=wanted)
    assert retried.letter.job_id == request.job_id


async def test_what_ended_badly_is_found_until_it_is_resubmitted(store: AnyStore) -> None:
    abandoned, final = await failed_jobs(store, 1, max_retries=0), [await failed_job(store, retryable=False)]
    await store.abandon_failed("acme")
    states = (JobState.ABANDONED, JobState.FAILED)
    found = await store.find_ended("acme", states)
    assert {job.job_id for job in found} == {*abandoned, *final}
    assert [j.job_id for j in await store.find_ended("acme", [JobState.ABANDONED])] == abandoned
    with job_tenant_scope("acme"):
        await store.resubmit(abandoned[0], max_pending=None)
    assert [job.job_id for job in await store.find_ended("acme", states)] == final
    assert await store.find_ended("other", states) == []


async def test_counts_by_type(store: AnyStore) -> None:
    await failed_jobs(store, 2)
    await failed_jobs(store, 1, max_retries=0)
    await failed_jobs(store, 1, job_type="OTHER", retryable=False)
    executor = await enter(store)
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job()])
    [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
    await store.finish([succeeded(claimed)])
    other, work = await store.count_letters("acme", since=timedelta(hours=1))
    assert (other.job_type, other.letters, other.failed, other.ended) == ("OTHER", 0, 1, 1)
    assert (work.letters, work.at_limit, work.failed, work.ended) == (3, 1, 3, 4)
    assert work.oldest_at is not None
    later = datetime.now(UTC) + timedelta(hours=2)
    [work] = await store.count_letters("acme", since=timedelta(hours=1), now=later)
    assert (work.letters, work.ended) == (3, 0)


async def test_the_chain_of_a_job_is_one_story(store: AnyStore) -> None:
    [first] = await failed_jobs(store, 1, max_retries=1)
    executor = await enter(store)
    [one] = await store.retry_failed("acme", retry, NO_BOUND, by="ann")
    assert one.child_id is not None
    claimed = await store.claim_job(executor, "acme", one.child_id)
    assert claimed is not None
    await store.finish([failed(claimed, "ValueError: again")])
    await store.abandon_failed("acme")
    with job_tenant_scope("acme"):
        fresh = await store.resubmit(one.child_id, max_pending=None, by="bob")
        for job_id in (first, one.child_id, fresh.job_id):
            chain = await store.chain(job_id)
            assert [(job.job_id, job.state) for job in chain] == [
                (first, JobState.RETRIED),
                (one.child_id, JobState.ABANDONED),
                (fresh.job_id, JobState.PENDING),
            ]
        events = await store.chain_events([job.job_id for job in chain])
        by = {(event.event, event.by) for event in events}
        assert {("jobs.job.retried", "ann"), ("jobs.job.resubmitted", "bob")} <= by
    with job_tenant_scope("other"):
        with pytest.raises(JobNotFound):
            await store.chain(first)
        assert await store.chain_events([first]) == []


async def test_what_was_resubmitted_is_no_dead_letter_any_more(store: AnyStore) -> None:
    first, second = await failed_job(store), await failed_job(store)
    with job_tenant_scope("acme"):
        await store.resubmit(first, max_pending=None)
    counted = {c.state: c.jobs for c in await store.counts()}
    assert counted == {JobState.PENDING: 1, JobState.FAILED: 1}
    assert [job.job_id for job in await store.find_failed("acme")] == [second]
