"""Registering: what callers of one tenant are promised, by every store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from durable_jobs.errors import IdempotencyConflict, JobNotFound, MissingTenant, NotAllowed, QueueFull
from durable_jobs.states import JobState
from durable_jobs.stores.protocols import Cursor, ExecutorStore, JobFilter, JobsOperator, JobsStore
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe


def test_both_stores_have_every_method(store: AnyStore) -> None:
    assert isinstance(store, JobsStore)
    assert isinstance(store, JobsOperator)
    assert isinstance(store, ExecutorStore)


async def test_a_registered_job_waits_and_is_complete(store: AnyStore) -> None:
    request = new_job({"n": 1}, priority=5, correlation_id="trace", submitted_by="ann", idempotency_key="k")
    with job_tenant_scope("acme"):
        [registered] = await store.register_idempotent([request])
        job = await store.get(request.job_id)
    assert registered.created
    assert job == registered.job
    assert (job.state, job.tenant_id, job.payload, job.priority) == (JobState.PENDING, "acme", {"n": 1}, 5)
    assert (job.correlation_id, job.submitted_by, job.idempotency_key) == ("trace", "ann", "k")
    assert (job.retry_count, job.max_retries, job.claim_count, job.crash_count) == (0, 3, 0, 0)
    assert job.root_job_id == job.job_id
    assert job.run_at == job.created_at
    assert abs(datetime.now(UTC) - job.created_at) < timedelta(minutes=1)
    assert not job.is_terminal


async def test_nothing_is_read_or_written_outside_of_a_tenants_scope(store: AnyStore, probe: Probe) -> None:
    request = new_job()
    for call in (
        lambda: store.register_idempotent([request]),
        lambda: store.get(request.job_id),
        lambda: store.get_result(request.job_id),
        lambda: store.update(request.job_id, request_cancel=True),
        lambda: store.list_jobs(JobFilter()),
        lambda: store.cancel(request.job_id),
        lambda: store.retry(request.job_id, max_pending=None),
        lambda: store.resubmit(request.job_id, max_pending=None),
    ):
        with pytest.raises(MissingTenant, match="job_tenant_scope"):
            await call()
    assert probe.jobs() == []


async def test_another_tenants_job_does_not_exist(store: AnyStore) -> None:
    request = new_job()
    with job_tenant_scope("acme"):
        await store.register_idempotent([request])
    with job_tenant_scope("other"):
        for call in (
            lambda: store.get(request.job_id),
            lambda: store.get_result(request.job_id),
            lambda: store.update(request.job_id, progress={"at": 1}),
            lambda: store.cancel(request.job_id),
            lambda: store.retry(request.job_id, max_pending=None),
            lambda: store.resubmit(request.job_id, max_pending=None),
        ):
            with pytest.raises(JobNotFound, match=f"{request.job_id} in tenant 'other'"):
                await call()
        assert (await store.list_jobs(JobFilter())).jobs == []
    with job_tenant_scope("acme"):
        assert (await store.get(request.job_id)).state is JobState.PENDING


async def test_a_known_key_answers_with_the_same_job(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        [first] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
        [again] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
    assert (first.created, again.created) == (True, False)
    assert again.job == first.job
    assert len(probe.jobs()) == 1


async def test_a_key_belongs_to_one_tenant(store: AnyStore) -> None:
    ids = set()
    for tenant in ("acme", "other"):
        with job_tenant_scope(tenant):
            [registered] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
        assert registered.created
        ids.add(registered.job.job_id)
    assert len(ids) == 2


async def test_other_data_under_a_known_key_is_refused(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        [first] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
        with pytest.raises(IdempotencyConflict, match=rf"'k'.*{first.job.job_id}.*other data"):
            await store.register_idempotent([new_job(), new_job({"n": 2}, idempotency_key="k")])
    assert len(probe.jobs()) == 1


async def test_a_key_answers_with_the_current_job_of_its_chain(store: AnyStore) -> None:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        [first] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
        last = first.job.job_id
        for _ in range(2):
            [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
            await store.finish([failed(claimed)])
            last = (await store.retry(last, max_pending=None)).job_id
            [again] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
            assert not again.created
            assert (again.job.job_id, again.job.root_job_id) == (last, first.job.job_id)
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        await store.finish([succeeded(claimed)])
        [ended] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
    assert (ended.job.job_id, ended.job.state) == (last, JobState.SUCCEEDED)


async def test_a_resubmission_does_not_take_the_key_over(store: AnyStore) -> None:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        [first] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        await store.finish([failed(claimed)])
        new_root = await store.resubmit(first.job.job_id, max_pending=None)
        [again] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k")])
    assert again.job.job_id == first.job.job_id != new_root.job_id


async def test_bulk_with_some_keys_known_answers_in_order(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job({"n": 2}, idempotency_key="k2", max_pending=10)])
        requests = [new_job({"n": n}, idempotency_key=f"k{n}", max_pending=10) for n in range(5)]
        answers = await store.register_idempotent(requests)
    assert [answer.created for answer in answers] == [True, True, False, True, True]
    assert [answer.job.payload["n"] for answer in answers] == [0, 1, 2, 3, 4]
    assert len(probe.jobs()) == probe.counted(QUEUE) == 5


async def test_bulk_is_all_or_nothing(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job({"n": n}, max_pending=10) for n in range(7)])
        with pytest.raises(QueueFull, match=r"'work'.*10 waiting.*4 more.*raise max_pending") as refused:
            await store.register_idempotent([new_job({"n": n}, max_pending=10) for n in range(4)])
        assert (refused.value.queue, refused.value.max_pending) == (QUEUE, 10)
        await store.register_idempotent([new_job({"n": n}, max_pending=10) for n in range(3)])
    assert len(probe.jobs()) == probe.counted(QUEUE) == 10


async def test_known_keys_are_answered_by_a_full_queue(store: AnyStore) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job({"n": 1}, idempotency_key="k", max_pending=1)])
        [again] = await store.register_idempotent([new_job({"n": 1}, idempotency_key="k", max_pending=1)])
        with pytest.raises(QueueFull):
            await store.register_idempotent([new_job({"n": 2}, max_pending=1)])
    assert not again.created


async def test_room_is_given_back_by_every_way_out_of_waiting(store: AnyStore, probe: Probe) -> None:
    executor = await enter(store)
    with job_tenant_scope("acme"):
        requests = [new_job({"n": n}, max_pending=3) for n in range(3)]
        await store.register_idempotent(requests)
        await store.cancel(requests[0].job_id)
        await store.claim_job(executor, "acme", requests[1].job_id)
        await store.claim(executor, QUEUE, 1)
        assert probe.counted(QUEUE) == 0
        await store.register_idempotent([new_job({"n": n}, max_pending=3) for n in range(3)])
    assert probe.counted(QUEUE) == 3


async def test_lists_are_newest_first_without_payloads(store: AnyStore) -> None:
    with job_tenant_scope("acme"):
        for n in range(7):
            await store.register_idempotent([new_job({"n": n}, correlation_id=str(n))])
        pages, after = [], None
        for _ in range(3):
            page = await store.list_jobs(JobFilter(), after=after, limit=3)
            pages.append([job.correlation_id for job in page.jobs])
            after = page.next
    assert pages == [["6", "5", "4"], ["3", "2", "1"], ["0"]]
    assert after is None
    assert all(job.payload is None and job.result is None for job in page.jobs)


async def test_pages_stay_stable_while_jobs_arrive(store: AnyStore) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job({"n": n}) for n in range(6)])
        known = [job.job_id for job in (await store.list_jobs(JobFilter())).jobs]
        seen, after = [], None
        while True:
            page = await store.list_jobs(JobFilter(), after=after, limit=2)
            seen += [job.job_id for job in page.jobs]
            await store.register_idempotent([new_job()])
            if page.next is None:
                break
            after = page.next
    assert seen == known


async def test_lists_filter(store: AnyStore) -> None:
    executor = await enter(store, QUEUE, "other")
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job(), new_job()])
        await store.register_idempotent([new_job(queue="other", job_type="ELSE")])
        [one] = (await store.claim(executor, "other", 1)).jobs
        await store.finish([failed(one, retryable=False)])

        async def found(**wanted: object) -> int:
            return len((await store.list_jobs(JobFilter(**wanted))).jobs)  # type: ignore[arg-type]

        assert await found() == 3
        assert await found(states=(JobState.PENDING,)) == 2
        assert await found(states=(JobState.PENDING, JobState.FAILED)) == 3
        assert await found(job_type="ELSE") == await found(queue="other") == 1
        assert await found(states=(JobState.FAILED,), retryable=True) == 0
        assert await found(retryable=False) == 1
        assert await found(since=datetime.now(UTC) + timedelta(minutes=1)) == 0
        first = (await store.list_jobs(JobFilter())).jobs[-1]
        at_first = Cursor(first.created_at, first.job_id)
        assert (await store.list_jobs(JobFilter(), after=at_first)).jobs == []


async def test_update_notes_progress_and_cancel_requests_of_live_jobs_only(store: AnyStore) -> None:
    executor = await enter(store)
    request = new_job()
    with job_tenant_scope("acme"):
        await store.register_idempotent([request])
        waiting = await store.update(request.job_id, progress={"step": 1})
        with pytest.raises(NotAllowed, match="cancel the job, which ends it at once"):
            await store.update(request.job_id, progress={"step": 2}, request_cancel=True)
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        running = await store.update(request.job_id, request_cancel=True)
        twice = await store.update(request.job_id, request_cancel=True)
        await store.finish([succeeded(claimed)])
        ended = await store.get(request.job_id)
        unchanged = await store.update(request.job_id, progress={"step": 9}, request_cancel=True)
    assert (waiting.state, waiting.progress) == (JobState.PENDING, {"step": 1})
    assert (running.state, running.progress) == (JobState.RUNNING, {"step": 1})
    assert running.cancel_requested_at == twice.cancel_requested_at is not None
    assert unchanged == ended


async def test_the_result_is_read_alone(store: AnyStore) -> None:
    executor = await enter(store)
    request = new_job()
    with job_tenant_scope("acme"):
        await store.register_idempotent([request])
        assert await store.get_result(request.job_id) is None
        [claimed] = (await store.claim(executor, QUEUE, 1)).jobs
        await store.finish([succeeded(claimed, {"pages": 3})])
        assert await store.get_result(request.job_id) == {"status": "OK", "value": {"pages": 3}}
