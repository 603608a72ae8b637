"""Retention in every store: what is due goes, chains whole, effects by their own clock. Time moves, not the rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from durable_jobs.effects.store import Answer, WantedEffect
from durable_jobs.errors import BadInput, PurgeUnderWay, RetentionViolated
from durable_jobs.jobs import ClaimedJob
from durable_jobs.retention import Budget, Look, Periods, Purged, look, purge, recorded, verify
from durable_jobs.states import JobState
from durable_jobs.stores.retention import Limits
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe

DAY = timedelta(days=1)


async def limits_in(store: AnyStore, days: float, periods: Periods | None = None) -> Limits:
    """What will be due in so many days."""
    now = (await store.retention_limits(DAY, DAY)).now + days * DAY
    return await (periods or Periods()).limits(store, DAY, now=now)


async def purge_in(store: AnyStore, days: float) -> tuple[Look, Purged]:
    """Purge as it will happen in so many days, and prove it."""
    limits = await limits_in(store, days)
    before = await look(store, limits)
    purged = await purge(store, None, limits, Budget())
    (await verify(store, before, purged, await look(store, limits))).require_good()
    return before, purged


async def ended(
    store: AnyStore, *, tenant: str = "acme", fail: bool = False, **changes: object
) -> ClaimedJob:
    """Have one job executed."""
    request = new_job({"n": str(uuid4())}, **changes)
    with job_tenant_scope(tenant):
        await store.register_idempotent([request])
    job = await store.claim_job(await enter(store), tenant, request.job_id)
    assert job is not None
    await store.finish([failed(job) if fail else succeeded(job)])
    return job


def ids(probe: Probe) -> set[UUID]:
    return {row["job_id"] for row in probe.jobs()}


async def test_t18_t19_a_job_goes_30_days_after_its_end_and_not_before(store: AnyStore, probe: Probe) -> None:
    job = await ended(store)
    before, purged = await purge_in(store, 29.9)
    assert (before.total("due"), purged.total) == (0, 0)
    assert ids(probe) == {job.job_id}
    before, purged = await purge_in(store, 30.1)
    assert (before.total("due"), purged.total) == (1, 1)
    assert purged.jobs == {("acme", "WORK", JobState.SUCCEEDED): 1}
    assert ids(probe) == set()
    assert (await purge_in(store, 30.1))[1].total == 0


async def test_t20_what_waits_or_runs_never_goes(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job(), new_job()])
    await store.claim(await enter(store), QUEUE, 1)
    _, purged = await purge_in(store, 1_000)
    assert purged.total == 0
    assert sorted(row["state"] for row in probe.jobs()) == ["PENDING", "RUNNING"]


async def test_ret1_a_chain_goes_with_its_last_job(store: AnyStore, probe: Probe) -> None:
    first = await ended(store, fail=True)
    with job_tenant_scope("acme"):
        child = await store.retry(first.job_id, max_pending=None)
    before, purged = await purge_in(store, 40)
    assert (before.total("kept_with_chain"), purged.total) == (1, 0)
    job = await store.claim_job(await enter(store), "acme", child.job_id)
    assert job is not None
    await store.finish([succeeded(job)])
    before, purged = await purge_in(store, 40)
    assert before.total("due") == purged.total == 2
    assert ids(probe) == set()


async def test_ret1_a_resubmission_stands_by_itself(store: AnyStore, probe: Probe) -> None:
    first = await ended(store, fail=True)
    with job_tenant_scope("acme"):
        new = await store.resubmit(first.job_id, max_pending=None)
    await purge_in(store, 40)
    assert ids(probe) == {new.job_id}
    assert probe.jobs()[0]["replay_of"] == first.job_id


async def test_ret4_what_purgeable_lists_is_what_purge_takes_by_tenant_type_and_state(
    store: AnyStore, probe: Probe
) -> None:
    for tenant in ("a", "b"):
        await ended(store, tenant=tenant)
        await ended(store, tenant=tenant, fail=True, job_type="MAIL")
    with job_tenant_scope("b"):
        await store.cancel((await ended(store, tenant="b", fail=True)).job_id)
    before, purged = await purge_in(store, 31)
    listed = {
        (tenant, job_type, state): group.jobs
        for tenant, found in before.tenants.items()
        for (job_type, state), group in found.groups.items()
    }
    assert listed == dict(purged.jobs)
    assert listed["b", "WORK", JobState.CANCELLED] == 1
    assert before.total("bytes") > 0
    assert ids(probe) == set()


async def test_ret5_a_replay_after_the_purge_does_not_repeat_an_effect_in_its_lifetime(
    store: AnyStore, probe: Probe
) -> None:
    async def begin() -> tuple[ClaimedJob, WantedEffect, Answer]:
        request = new_job({"invoice": 7}, idempotency_key="invoice-7")
        with job_tenant_scope("acme"):
            await store.register_idempotent([request])
        job = await store.claim_job(await enter(store), "acme", request.job_id)
        assert job is not None
        wanted = WantedEffect("invoice 7", "MAIL", uuid4(), None)
        begun = await store.begin_effect(job, wanted, patience=DAY)
        return job, wanted, begun.answer

    job, wanted, answer = await begin()
    assert answer is Answer.TAKEN
    assert await store.confirm_effect(job, wanted, None)
    await store.finish([succeeded(job)])
    assert (await purge_in(store, 89))[1].effects == 0
    assert ids(probe) == set()
    # The key of the request is free again, the effect is not made again.
    job, _, answer = await begin()
    assert answer is Answer.DONE
    await store.finish([succeeded(job)])
    before, purged = await purge_in(store, 91)
    assert before.total("effects_due") == purged.effects == 1
    assert probe.effects() == []


async def test_effects_do_not_go_before_their_chain(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job()])
    [job] = (await store.claim(await enter(store), QUEUE, 1)).jobs
    wanted = WantedEffect("once", "MAIL", uuid4(), None)
    await store.begin_effect(job, wanted, patience=DAY)
    await store.confirm_effect(job, wanted, None)
    before, purged = await purge_in(store, 1_000)
    assert (before.total("effects_kept"), purged.effects) == (1, 0)
    assert len(probe.effects()) == 1


async def test_effects_do_not_go_before_what_was_submitted_anew(store: AnyStore, probe: Probe) -> None:
    with job_tenant_scope("acme"):
        await store.register_idempotent([new_job()])
        [job] = (await store.claim(await enter(store), QUEUE, 1)).jobs
        wanted = WantedEffect(str(job.job_id), "MAIL", uuid4(), None)
        await store.begin_effect(job, wanted, patience=DAY)
        await store.confirm_effect(job, wanted, None)
        await store.finish([failed(job)])
        new = await store.resubmit(job.job_id, max_pending=None)
    assert (await purge_in(store, 1_000))[1].effects == 0
    assert ids(probe) == {new.job_id}
    anew = await store.claim_job(await enter(store), "acme", new.job_id)
    assert anew is not None
    begun = await store.begin_effect(anew, WantedEffect(None, "MAIL", uuid4(), None), patience=DAY)
    assert begun.answer is Answer.DONE
    await store.finish([succeeded(anew)])
    assert (await purge_in(store, 1_000))[1].effects == 1
    assert probe.effects() == []


async def test_ret5_published_events_go_with_their_job_and_others_never(
    store: AnyStore, probe: Probe
) -> None:
    await ended(store, fail=True)
    await ended(store, fail=True, tenant="later")
    [event, other] = probe.events()
    await store.take_events(10)
    await store.settle_events([event["event_id"]], [])
    await purge_in(store, 31)
    assert ids(probe) == set()
    assert [e["event_id"] for e in probe.events()] == [other["event_id"]]


async def test_two_failing_runs_in_a_row_are_said(store: AnyStore, probe: Probe) -> None:
    async def run(fault: bool) -> None:
        async with recorded(store, await limits_in(store, 0)):
            if fault:
                raise RetentionViolated("something is left", early=False)

    for _ in range(2):
        with pytest.raises(RetentionViolated):
            await run(True)
    await run(False)
    told = [(event["event"], event["severity"]) for event in probe.events()]
    assert told == [("jobs.retention.violated", "CRITICAL"), ("jobs.purge.completed", "INFO")]
    assert (await store.purge_state()).failing_runs == 0


async def test_only_one_purge_is_at_work(store: AnyStore) -> None:
    limits = await limits_in(store, 0)
    async with recorded(store, limits):
        with pytest.raises(PurgeUnderWay):
            async with recorded(store, limits):
                pass
    async with recorded(store, limits):
        pass


async def test_naive_limits_are_refused(store: AnyStore) -> None:
    naive = datetime(2030, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    with pytest.raises(BadInput, match="no time zone"):
        await store.purge("jobs", None, "acme", Limits(naive, naive, naive), limit=1)
