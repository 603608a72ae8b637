"""Claiming: the order, the turns of tenants, delays, pauses, fronts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from durable_jobs.jobs import NewJob
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Front
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job
from tests.support.probes import Probe

LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)


async def register(store: AnyStore, tenant: str, *jobs: NewJob) -> None:
    with job_tenant_scope(tenant):
        await store.register_idempotent(jobs)


async def test_a_claimed_job_runs_under_a_fence_and_a_deadline(store: AnyStore, probe: Probe) -> None:
    executor = await enter(store)
    request = new_job({"n": 1}, correlation_id="trace", timeout=timedelta(minutes=7))
    await register(store, "acme", request)
    [claimed] = (await store.claim(executor, QUEUE, 10)).jobs
    [row] = probe.jobs()
    assert (row["state"], row["claim_token"], row["executor_id"]) == (
        "RUNNING",
        claimed.claim_token,
        executor,
    )
    assert (row["claim_count"], row["pending_shard"]) == (1, None)
    assert row["deadline_at"] - row["started_at"] == timedelta(minutes=7)
    assert claimed.deadline_at == row["deadline_at"]
    assert (claimed.tenant_id, claimed.payload, claimed.correlation_id) == ("acme", '{"n": 1}', "trace")
    assert (claimed.job_id, claimed.root_job_id) == (request.job_id, request.job_id)
    assert (await store.claim(executor, QUEUE, 10)).jobs == []


async def test_priority_then_first_attempts_then_age(store: AnyStore) -> None:
    executor = await enter(store)
    retried = new_job({"is": "retry"})
    await register(store, "acme", retried)
    [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
    await store.finish([failed(claimed)])
    with job_tenant_scope("acme"):
        await store.retry(retried.job_id, max_pending=None, run_at=LONG_AGO)
    await register(
        store,
        "acme",
        new_job({"is": "young"}, run_at=LONG_AGO + timedelta(hours=2)),
        new_job({"is": "old"}, run_at=LONG_AGO + timedelta(hours=1)),
        new_job({"is": "low"}, priority=-1, run_at=LONG_AGO),
        new_job({"is": "high"}, priority=1),
    )
    # One by one and all at once give the same order.
    order = [(await store.claim(executor, QUEUE, 1)).jobs[0].payload for _ in range(2)]
    order += [job.payload for job in (await store.claim(executor, QUEUE, 10)).jobs]
    assert order == [f'{{"is": "{name}"}}' for name in ("high", "old", "young", "retry", "low")]


async def test_equal_age_runs_in_the_order_of_ids(store: AnyStore) -> None:
    executor = await enter(store)
    requests = [new_job(run_at=LONG_AGO) for _ in range(20)]
    await register(store, "acme", *reversed(requests))
    claimed = (await store.claim(executor, QUEUE, 20)).jobs
    assert [job.job_id for job in claimed] == sorted(request.job_id for request in requests)


async def test_delayed_jobs_wait_and_do_not_hold_others_up(store: AnyStore) -> None:
    executor = await enter(store)
    soon = datetime.now(UTC) + timedelta(minutes=5)
    await register(
        store,
        "acme",
        *[new_job({"is": "later"}, priority=9, run_at=soon) for _ in range(5)],
        new_job({"is": "now"}),
    )
    assert [job.payload for job in (await store.claim(executor, QUEUE, 3)).jobs] == ['{"is": "now"}']
    assert len((await store.claim(executor, QUEUE, 3, now=soon)).jobs) == 3


@pytest.mark.parametrize("limit", [0, 1, 7, 100])
async def test_a_claim_takes_at_most_what_was_asked(store: AnyStore, limit: int) -> None:
    executor = await enter(store)
    for tenant in ("a", "b", "c"):
        await register(store, tenant, *[new_job() for _ in range(10)])
    assert len((await store.claim(executor, QUEUE, limit)).jobs) == min(limit, 30)


async def test_tenants_take_turns_whatever_they_have_waiting(store: AnyStore) -> None:
    executor = await enter(store)
    await register(store, "a-big", *[new_job() for _ in range(50)])
    for tenant in ("b", "c", "d"):
        await register(store, tenant, *[new_job() for _ in range(3)])
    after, seen = "", []
    for _ in range(3):
        claimed = (await store.claim(executor, QUEUE, 4, after_tenant=after)).jobs
        seen.append(Counter(job.tenant_id for job in claimed))
        after = max(job.tenant_id for job in claimed)
    assert seen == [Counter({"a-big": 1, "b": 1, "c": 1, "d": 1})] * 3


async def test_the_turn_starts_behind_the_tenant_of_the_last_claim(store: AnyStore) -> None:
    executor = await enter(store)
    for tenant in ("a", "b", "c"):
        await register(store, tenant, *[new_job() for _ in range(4)])
    after, seen = "", []
    for _ in range(7):
        [job] = (await store.claim(executor, QUEUE, 1, after_tenant=after)).jobs
        seen.append(after := job.tenant_id)
    assert "".join(seen) == "abcabca"
    two = (await store.claim(executor, QUEUE, 2, after_tenant="b")).jobs
    assert {job.tenant_id for job in two} == {"c", "a"}
    # A tenant that is gone still tells where to go on.
    [job] = (await store.claim(executor, QUEUE, 1, after_tenant="bb")).jobs
    assert job.tenant_id == "c"


async def test_more_tenants_than_asked_for_are_all_reached_in_turn(store: AnyStore) -> None:
    executor = await enter(store)
    soon = datetime.now(UTC) + timedelta(hours=1)
    for n in range(12):
        await register(store, f"t{n:02}", new_job(run_at=soon))
    await register(store, "t10", new_job())
    # Only the eleventh tenant has something due; the claim looks round the circle once.
    for after in ("", "t03", "t10", "t11"):
        claimed = (await store.claim(executor, QUEUE, 2, after_tenant=after)).jobs
        assert [job.tenant_id for job in claimed] == ["t10"]
        await store.release([(claimed[0], True)], "again")


async def test_what_is_paused_waits_and_goes_on(store: AnyStore) -> None:
    executor = await enter(store)
    held_back, other = new_job({"is": "held back"}), new_job({"is": "other"}, job_type="OTHER")
    for request in (held_back, other):
        await register(store, "acme", request)
    await store.pause("type", "WORK", by="ann")
    await store.pause("type", "WORK", by="bob")
    assert [(p.kind, p.name, p.by) for p in await store.paused()] == [("type", "WORK", "ann")]
    assert await store.claim_job(executor, "acme", held_back.job_id) is None
    [claimed] = (await store.claim(executor, QUEUE, 10)).jobs
    assert claimed.job_id == other.job_id
    assert await store.resume("type", "WORK")
    assert not await store.resume("type", "WORK")
    await store.pause("queue", QUEUE)
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    assert await store.claim_job(executor, "acme", held_back.job_id) is None
    with job_tenant_scope("acme"):
        assert (await store.get(held_back.job_id)).state is JobState.PENDING
    await store.resume("queue", QUEUE)
    [claimed] = (await store.claim(executor, QUEUE, 10)).jobs
    assert claimed.job_id == held_back.job_id


async def test_one_job_is_claimed_by_its_id_once_and_when_it_is_due(store: AnyStore) -> None:
    executor = await enter(store)
    soon = datetime.now(UTC) + timedelta(minutes=1)
    request = new_job(run_at=soon)
    await register(store, "acme", request)
    assert await store.claim_job(executor, "acme", request.job_id) is None
    assert await store.claim_job(executor, "other", request.job_id, now=soon) is None
    claimed = await store.claim_job(executor, "acme", request.job_id, now=soon)
    assert claimed is not None
    assert claimed.job_id == request.job_id
    assert await store.claim_job(executor, "acme", request.job_id, now=soon) is None


async def test_a_front_steps_over_what_lies_before_it(store: AnyStore) -> None:
    executor = await enter(store)
    requests = [new_job({"n": n}, run_at=LONG_AGO + timedelta(minutes=n)) for n in range(6)]
    await register(store, "acme", *requests)
    first = await store.claim(executor, QUEUE, 3)
    assert first.fronts == [Front("acme", 0, LONG_AGO + timedelta(minutes=2))]
    # A job that commits late lies before the front: the cheap claim misses it, the full one does not.
    await register(store, "acme", new_job({"n": "late"}, run_at=LONG_AGO))
    cheap = await store.claim(executor, QUEUE, 10, fronts=first.fronts)
    assert [job.payload for job in cheap.jobs] == ['{"n": 3}', '{"n": 4}', '{"n": 5}']
    full = await store.claim(executor, QUEUE, 10)
    assert [job.payload for job in full.jobs] == ['{"n": "late"}']
    assert (await store.claim(executor, QUEUE, 10, fronts=[])).jobs == []


async def test_queues_are_apart(store: AnyStore) -> None:
    executor = await enter(store, QUEUE, "other")
    await register(store, "acme", new_job(queue="other"))
    assert (await store.claim(executor, QUEUE, 10)).jobs == []
    assert len((await store.claim(executor, "other", 10)).jobs) == 1
