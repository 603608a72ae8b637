"""Effects in every store: reserved under the fence, then confirmed, released, or unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from durable_jobs.effects.store import Answer, BegunEffect, EffectState, WantedEffect
from durable_jobs.errors import EffectNotFound, MissingTenant, NotAllowed
from durable_jobs.jobs import ClaimedJob
from durable_jobs.tenants import job_tenant_scope
from tests.conftest import AnyStore
from tests.support.jobs import QUEUE, enter, failed, new_job, succeeded
from tests.support.probes import Probe

SHORT = timedelta(milliseconds=50)


async def claimed_jobs(store: AnyStore, n: int = 1, tenant: str = "acme") -> list[ClaimedJob]:
    executor = await enter(store)
    with job_tenant_scope(tenant):
        await store.register_idempotent([new_job({"n": str(uuid4())}) for _ in range(n)])
    return (await store.claim(executor, QUEUE, n)).jobs


async def begin(
    store: AnyStore,
    job: ClaimedJob,
    key: str | None = "invoice 7",
    *,
    over: UUID | None = None,
    now: datetime | None = None,
) -> tuple[WantedEffect, BegunEffect]:
    wanted = WantedEffect(key, "MAIL", uuid4(), over)
    begun = await store.begin_effect(job, wanted, patience=SHORT, now=now)
    return wanted._replace(key=begun.key), begun


async def retried(store: AnyStore, job: ClaimedJob) -> ClaimedJob:
    """Fail the job, retry it, and claim the retry."""
    await store.finish([failed(job)])
    with job_tenant_scope(job.tenant_id):
        await store.retry(job.job_id, max_pending=None)
    return (await store.claim(await enter(store), QUEUE, 1)).jobs[0]


async def resubmitted(store: AnyStore, job: ClaimedJob) -> ClaimedJob:
    """Fail the job, submit it anew, and claim that."""
    await store.finish([failed(job)])
    with job_tenant_scope(job.tenant_id):
        await store.resubmit(job.job_id, max_pending=None)
    return (await store.claim(await enter(store), QUEUE, 1)).jobs[0]


async def test_an_effect_is_reserved_then_confirmed_then_done(store: AnyStore, probe: Probe) -> None:
    first, second = await claimed_jobs(store, 2)
    wanted, begun = await begin(store, first)
    assert begun.answer is Answer.TAKEN
    [row] = probe.effects()
    assert (row["state"], row["key"], row["effect_type"]) == ("RESERVED", "invoice 7", "MAIL")
    assert (row["job_id"], row["root_job_id"], row["tenant_id"]) == (first.job_id, first.job_id, "acme")
    assert row["confirmed_at"] is None

    assert await store.confirm_effect(first, wanted, '{"id": "m-1"}')
    _, again = await begin(store, second)
    assert (again.answer, again.job_id, again.result) == (Answer.DONE, first.job_id, {"id": "m-1"})
    [row] = probe.effects()
    assert row["state"] == "CONFIRMED"
    assert row["confirmed_at"] is not None
    assert probe.events() == []


async def test_asking_or_telling_again_after_a_lost_answer_changes_nothing(
    store: AnyStore, probe: Probe
) -> None:
    [job] = await claimed_jobs(store)
    wanted, _ = await begin(store, job)
    assert (await store.begin_effect(job, wanted, patience=SHORT)).answer is Answer.TAKEN
    assert await store.confirm_effect(job, wanted, None)
    before = probe.effects()
    assert await store.confirm_effect(job, wanted, None)
    assert probe.effects() == before
    assert probe.events() == []


async def test_a_twin_is_told_that_the_effect_is_held_until_its_holder_ends(store: AnyStore) -> None:
    holder, twin = await claimed_jobs(store, 2)
    await begin(store, holder)
    _, begun = await begin(store, twin)
    assert (begun.answer, begun.job_id) == (Answer.HELD, holder.job_id)
    await store.finish([failed(holder)])
    assert (await begin(store, twin))[1].answer is Answer.UNKNOWN


async def test_types_and_tenants_have_their_own_keys(store: AnyStore, probe: Probe) -> None:
    [job] = await claimed_jobs(store)
    [foreign] = await claimed_jobs(store, tenant="other")
    await begin(store, job)
    other_type = WantedEffect("invoice 7", "SMS", uuid4())
    assert (await store.begin_effect(job, other_type, patience=SHORT)).answer is Answer.TAKEN
    assert (await begin(store, foreign))[1].answer is Answer.TAKEN
    assert len(probe.effects()) == 3


@pytest.mark.parametrize("ended", ["finished", "released", "cancelled", "overdue"])
async def test_an_execution_that_is_over_reserves_nothing(store: AnyStore, probe: Probe, ended: str) -> None:
    [job] = await claimed_jobs(store)
    now = None
    expected = Answer.LOST
    if ended == "finished":
        await store.finish([succeeded(job)])
    elif ended == "released":
        await store.release([(job, True)], "worker shut down")
        await store.claim(await enter(store), QUEUE, 1)
    elif ended == "cancelled":
        with job_tenant_scope("acme"):
            await store.cancel(job.job_id)
        expected = Answer.CANCELLED
    else:
        now, expected = job.deadline_at + timedelta(milliseconds=1), Answer.OVERDUE
    assert (await begin(store, job, now=now))[1].answer is expected
    assert probe.effects() == []


async def test_the_fence_is_looked_at_before_the_effect(store: AnyStore) -> None:
    first, late = await claimed_jobs(store, 2)
    wanted, _ = await begin(store, first)
    await store.confirm_effect(first, wanted, None)
    await store.finish([failed(late)])
    assert (await begin(store, late))[1].answer is Answer.LOST


async def test_without_a_key_retries_and_resubmissions_find_the_effect(store: AnyStore) -> None:
    [root] = await claimed_jobs(store)
    wanted, begun = await begin(store, root, None)
    assert begun.key == str(root.job_id)
    await store.confirm_effect(root, wanted, None)
    retry = await retried(store, root)
    assert (await begin(store, retry, None))[1].answer is Answer.DONE
    anew = await resubmitted(store, retry)
    assert anew.root_job_id == anew.job_id
    again = (await begin(store, anew, None))[1]
    assert (again.answer, again.key, again.job_id) == (Answer.DONE, str(root.job_id), root.job_id)
    await begin(store, anew, "other")
    with job_tenant_scope("acme"):
        views = await store.effects(job_id=anew.job_id)
    assert [(view.key, view.root_job_id) for view in views] == [
        ("other", root.job_id),
        (str(root.job_id), root.job_id),
    ]
    once_more = await retried(store, anew)
    assert (await begin(store, once_more, None))[1].key == str(root.job_id)
    anew_again = await resubmitted(store, once_more)
    assert (await begin(store, anew_again, None))[1].key == str(root.job_id)


async def test_an_unknown_effect_is_taken_over_by_one(store: AnyStore, probe: Probe) -> None:
    dead, one, other = await claimed_jobs(store, 3)
    await begin(store, dead)
    await store.finish([failed(dead)])
    _, unknown = await begin(store, one)
    assert (unknown.answer, unknown.job_id) == (Answer.UNKNOWN, dead.job_id)
    _, taken = await begin(store, one, over=unknown.reservation)
    assert taken.answer is Answer.TAKEN
    assert (await begin(store, other, over=unknown.reservation))[1].answer is Answer.HELD
    [row] = probe.effects()
    assert (row["state"], row["job_id"]) == ("RESERVED", one.job_id)


async def test_the_same_execution_finds_its_own_unsettled_attempt_unknown(store: AnyStore) -> None:
    [job] = await claimed_jobs(store)
    await begin(store, job)
    assert (await begin(store, job))[1].answer is Answer.UNKNOWN


async def test_a_released_effect_is_forgotten_and_an_unreleased_one_is_unknown(
    store: AnyStore, probe: Probe
) -> None:
    job, other = await claimed_jobs(store, 2)
    _, begun = await begin(store, job)
    await store.end_effect(job, begun, released=True)
    assert probe.effects() == []
    _, begun = await begin(store, other)
    assert begun.answer is Answer.TAKEN
    await store.end_effect(other, begun, released=False)
    assert [row["state"] for row in probe.effects()] == ["UNKNOWN"]
    assert probe.events() == []
    # What is unknown is not taken again, nor released, by the attempt that left it so.
    left = WantedEffect("invoice 7", "MAIL", begun.reservation or uuid4())
    assert (await store.begin_effect(other, left, patience=SHORT)).answer is Answer.UNKNOWN
    await store.end_effect(other, begun, released=True)
    assert [row["state"] for row in probe.effects()] == ["UNKNOWN"]


async def test_a_stop_asks_for_a_person_by_an_event_without_the_key(store: AnyStore, probe: Probe) -> None:
    dead, stopped = await claimed_jobs(store, 2)
    await begin(store, dead, "secret@example.org")
    await store.finish([succeeded(dead)])
    _, unknown = await begin(store, stopped, "secret@example.org")
    await store.end_effect(stopped, unknown, released=False, stopped=True)
    [row] = probe.effects()
    assert row["state"] == "UNKNOWN"
    [event] = probe.events()
    assert (event["event"], event["severity"]) == ("jobs.effect.unknown", "CRITICAL")
    assert (event["job_id"], event["tenant_id"]) == (stopped.job_id, "acme")
    assert event["payload"]["effectType"] == "MAIL"
    assert event["payload"]["effectId"] == str(row["id"])
    assert event["payload"]["triedBy"] == str(dead.job_id)
    assert "secret" not in str(event["payload"])


async def test_a_late_confirmation_of_an_unknown_effect_is_the_truth(store: AnyStore, probe: Probe) -> None:
    dead, stopped = await claimed_jobs(store, 2)
    wanted, begun = await begin(store, dead)
    await store.finish([failed(dead)])
    await store.end_effect(stopped, begun, released=False, stopped=True)
    assert await store.confirm_effect(dead, wanted, '"m-1"')
    [row] = probe.effects()
    assert (row["state"], row["job_id"], row["result"]) == ("CONFIRMED", dead.job_id, "m-1")


@pytest.mark.parametrize("meanwhile", ["taken over", "released", "confirmed by the other"])
async def test_an_overtaken_confirmation_counts_and_is_told(
    store: AnyStore, probe: Probe, meanwhile: str
) -> None:
    frozen, other = await claimed_jobs(store, 2)
    wanted, begun = await begin(store, frozen)
    await store.finish([failed(frozen)])
    if meanwhile == "released":
        with job_tenant_scope("acme"):
            assert begun.effect_id is not None
            await store.settle_effect(begun.effect_id, happened=False)
    else:
        theirs, _ = await begin(store, other, over=begun.reservation)
        if meanwhile == "confirmed by the other":
            await store.confirm_effect(other, theirs, '"theirs"')
    assert not await store.confirm_effect(frozen, wanted, None)
    [row] = probe.effects()
    assert (row["state"], row["job_id"], row["root_job_id"]) == ("CONFIRMED", frozen.job_id, frozen.job_id)
    assert row["result"] == ("theirs" if meanwhile == "confirmed by the other" else None)
    event = probe.events()[-1]
    assert (event["event"], event["severity"]) == ("jobs.effect.overtaken", "WARNING")
    expected = {"released": None, "taken over": "RESERVED", "confirmed by the other": "CONFIRMED"}
    assert event["payload"]["otherState"] == expected[meanwhile]
    if meanwhile == "taken over":
        # Whoever took it over learns that it was made twice.
        assert not await store.confirm_effect(other, theirs, None)


async def test_a_person_settles_an_unknown_effect(store: AnyStore, probe: Probe) -> None:
    [dead, other] = await claimed_jobs(store, 2)
    _, happened = await begin(store, dead, "a")
    _, not_happened = await begin(store, dead, "b")
    assert happened.effect_id is not None
    assert not_happened.effect_id is not None
    with job_tenant_scope("acme"):
        with pytest.raises(NotAllowed, match="wait until that job has ended"):
            await store.settle_effect(happened.effect_id, happened=True)
        await store.finish([failed(dead)])
        confirmed = await store.settle_effect(happened.effect_id, happened=True, by="ann")
        assert (confirmed.state, confirmed.job_id) == (EffectState.CONFIRMED, dead.job_id)
        await store.settle_effect(not_happened.effect_id, happened=False, by="ann")
        # Said again, the first is harmless; the contrary is refused.
        assert (await store.settle_effect(happened.effect_id, happened=True)).state is EffectState.CONFIRMED
        with pytest.raises(NotAllowed, match="is CONFIRMED"):
            await store.settle_effect(happened.effect_id, happened=False)
        with pytest.raises(EffectNotFound, match=str(not_happened.effect_id)):
            await store.settle_effect(not_happened.effect_id, happened=True)
    assert (await begin(store, other, "a"))[1].answer is Answer.DONE
    assert (await begin(store, other, "b"))[1].answer is Answer.TAKEN
    told = [e["payload"] for e in probe.events() if e["event"] == "jobs.effect.settled"]
    assert [(p["happened"], p["by"]) for p in told] == [(True, "ann"), (False, "ann")]


async def test_a_tenant_sees_and_settles_only_its_own(store: AnyStore) -> None:
    [job] = await claimed_jobs(store)
    _, begun = await begin(store, job)
    await store.finish([failed(job)])
    assert begun.effect_id is not None
    with job_tenant_scope("other"):
        assert await store.effects() == []
        with pytest.raises(EffectNotFound):
            await store.settle_effect(begun.effect_id, happened=True)
    with pytest.raises(MissingTenant):
        await store.effects()
    with job_tenant_scope("acme"):
        assert [view.effect_id for view in await store.effects()] == [begun.effect_id]


async def test_the_list_shows_an_abandoned_reservation_as_unknown(store: AnyStore) -> None:
    [root] = await claimed_jobs(store)
    wanted, _ = await begin(store, root, "a")
    await store.confirm_effect(root, wanted, '{"id": 1}')
    await begin(store, root, "b")
    with job_tenant_scope("acme"):
        assert [view.state for view in await store.effects()] == [EffectState.RESERVED, EffectState.CONFIRMED]
        retry = await retried(store, root)
        _, taken = await begin(store, retry, "c")
        assert taken.answer is Answer.TAKEN
        views = await store.effects()
        assert [(view.key, view.state) for view in views] == [
            ("c", EffectState.RESERVED),
            ("b", EffectState.UNKNOWN),
            ("a", EffectState.CONFIRMED),
        ]
        assert views[2].result == {"id": 1}
        assert [v.key for v in await store.effects(states=[EffectState.UNKNOWN])] == ["b"]
        assert [v.key for v in await store.effects(job_id=root.job_id)] == ["c", "b", "a"]
        assert [v.key for v in await store.effects(job_id=retry.job_id)] == ["c", "b", "a"]
        assert [v.key for v in await store.effects(limit=1)] == ["c"]


async def test_time_is_given_or_the_stores(store: AnyStore, probe: Probe) -> None:
    [job] = await claimed_jobs(store)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    wanted, _ = await begin(store, job, now=at)
    await store.confirm_effect(job, wanted, None, now=at + timedelta(seconds=1))
    [row] = probe.effects()
    assert (row["created_at"], row["confirmed_at"]) == (at, at + timedelta(seconds=1))
