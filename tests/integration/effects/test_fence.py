"""A late execution, fenced off, makes no effect; nor does one that is cancelled or overdue."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from durable_jobs import JobContext, JobState
from durable_jobs.effects import ExecutionOver
from durable_jobs.errors import StoreUnavailable
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.stores.protocols import Decision
from durable_jobs.tenants import job_tenant_scope
from tests.integration.effects.world import TENANT, Request, World
from tests.support.connections import psycopg_async
from tests.support.eventually import eventually
from tests.support.jobs import enter


@pytest.mark.parametrize("way", ["async", "thread"])
async def test_an_execution_that_was_declared_dead_makes_no_effect(world: World, way: str) -> None:
    """It is frozen; another takes its job meanwhile and makes the effect; then it goes on."""
    made: list[str] = []
    errors: list[BaseException] = []
    loop = asyncio.get_running_loop()

    async def frozen(context: JobContext) -> None:
        executor = next(e.executor.executor_id for e in await world.store.executors())
        await world.store.leave_executor(executor)
        settled = await world.store.settle_orphans(TENANT, [], lambda _: Decision(replay=True), max_crashes=9)
        assert settled == {context.job_id: JobState.PENDING}
        # A job whose executor died runs alone.
        second = await enter(world.store)
        claimed = await world.store.claim_job(second, TENANT, context.job_id)
        assert claimed is not None
        other = JobContext(claimed, lambda _job, _text: None, effects=world.store)
        async with other.effect("mail") as effect:
            assert not effect.already_done
            made.append("second")

    async def process(_: Request, context: JobContext) -> None:
        others = asyncio.create_task(frozen(context))
        while not others.done():
            # Its shift may see meanwhile that it was given up; what is frozen does not notice.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(others)
        try:
            async with context.effect("call") as effect:
                if not effect.already_done:
                    made.append("late")
        except BaseException as error:
            errors.append(error)
            raise

    def in_a_thread(_: Request, context: JobContext) -> None:
        asyncio.run_coroutine_threadsafe(frozen(context), loop).result(60)
        try:
            with context.effect("call") as effect:
                if not effect.already_done:
                    made.append("late")
        except BaseException as error:
            errors.append(error)
            raise

    world.declare(process if way == "async" else in_a_thread, on_orphan="replay")
    job = await world.submit()
    await world.work()
    # A shift that was given up does not wait for what it ran.
    await eventually(lambda: errors or "late" in made, timedelta(seconds=60))
    assert made == ["second"]
    # An async execution may be interrupted by the audit first; either way it is over.
    assert all(isinstance(error, (ExecutionOver, asyncio.CancelledError)) for error in errors)
    # What the late execution says counts for nothing: the row is the second one's.
    assert (await world.get(job)).state is JobState.RUNNING
    assert world.effects() == [("mail", "CONFIRMED")]


async def test_a_job_that_is_to_be_cancelled_makes_no_effect(world: World) -> None:
    made: list[str] = []

    def process(_: Request, context: JobContext) -> None:
        asyncio.run_coroutine_threadsafe(cancel(context), loop).result(10)
        with context.effect("mail") as effect:
            if not effect.already_done:
                made.append("late")

    async def cancel(context: JobContext) -> None:
        with job_tenant_scope(TENANT):
            await world.store.cancel(context.job_id)

    loop = asyncio.get_running_loop()
    world.declare(process)
    job = await world.executed()
    assert (job.state, made) == (JobState.CANCELLED, [])
    assert world.effects() == []


async def test_an_overdue_job_makes_no_effect(world: World, owner_connection: psycopg.Connection) -> None:
    made: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        # As after a pause of the whole machine: the deadline is past, and nobody has looked yet.
        owner_connection.execute("UPDATE job_history SET deadline_at = now() - interval '1 second'")
        async with context.effect("mail") as effect:
            if not effect.already_done:
                made.append("late")

    world.declare(process)
    job = await world.executed()
    assert (job.state, job.failed_reason, made) == (JobState.FAILED, "timed out after 3600 s", [])
    assert world.effects() == []


async def test_processors_that_swallow_the_fence_change_nothing(world: World) -> None:
    """`except Exception` around an effect is common; the outcome is fenced all the same."""
    made: list[str] = []

    async def process(_: Request, context: JobContext) -> str:
        far = job.created_at + timedelta(days=1)
        assert await world.store.fail_overdue(margin=timedelta(0), now=far) == [job.job_id]
        for step in ("mail", "call"):
            try:
                async with context.effect(step) as effect:
                    if not effect.already_done:
                        made.append(step)
            except Exception as error:  # noqa: BLE001 -- what is tested
                context.logger.info("swallowed", error=str(error))
        return "all well"

    world.declare(process)
    job = await world.submit()
    await world.work()
    assert (await world.get(job)).state is JobState.FAILED
    assert (made, world.effects()) == ([], [])


async def test_a_reservation_waits_for_whoever_is_giving_the_job_up(
    world: World, owner_connection: psycopg.Connection
) -> None:
    """So no reservation is committed after its job was given up."""
    made: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        reached.set()
        async with context.effect("mail") as effect:
            if not effect.already_done:
                made.append("mail")

    reached = asyncio.Event()
    world.declare(process)
    job = await world.submit()
    waiting = "SELECT pid FROM pg_locks WHERE relation = 'job_effects'::regclass AND NOT granted"
    with owner_connection.transaction():
        owner_connection.execute("LOCK job_effects IN ACCESS EXCLUSIVE MODE")
        working = asyncio.create_task(world.work())
        await reached.wait()
        await eventually(lambda: world.probe.run(waiting))
        # It holds the job's row now: whoever decides about the job passes it over.
        far = job.created_at + timedelta(days=1)
        assert await world.store.fail_overdue(margin=timedelta(0), now=far) == []
    await working
    assert (made, world.effects()) == (["mail"], [("mail", "CONFIRMED")])


async def test_a_reservation_is_refused_once_the_job_was_given_up_meanwhile(
    world: World, database_url: str
) -> None:
    made: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        async with psycopg_async(database_url) as reconciler:
            await reconciler.execute("SELECT set_config('durable_jobs.tenant_ids', '{acme}', true)")
            await reconciler.execute("SELECT FROM job_history FOR UPDATE")
            await reconciler.execute(
                "UPDATE job_history SET state = 'FAILED', failed_reason = 'stalled', completed_at = now()"
            )
            entering = asyncio.create_task(late(context))
            waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            await eventually(lambda: world.probe.run(waiting))
        await entering

    async def late(context: JobContext) -> None:
        async with context.effect("mail") as effect:
            if not effect.already_done:
                made.append("mail")

    world.declare(process)
    job = await world.executed()
    assert (job.state, job.failed_reason) == (JobState.FAILED, "stalled")
    assert (made, world.effects()) == ([], [])


class Flaky:
    """A store whose database is away for some calls, before or after it has done them."""

    def __init__(self, store: PgJobsStore, name: str, *, times: int, answer_lost: bool) -> None:
        self._call = getattr(store, name)
        self._times, self._answer_lost = times, answer_lost

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._times > 0:
            self._times -= 1
            if self._answer_lost:
                await self._call(*args, **kwargs)
            raise StoreUnavailable("the database does not answer")
        return await self._call(*args, **kwargs)


@pytest.mark.parametrize("answer_lost", [True, False])
@pytest.mark.parametrize("name", ["begin_effect", "confirm_effect"])
async def test_a_store_that_is_away_for_a_moment_leaves_nothing_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str, answer_lost: bool
) -> None:
    made: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        async with context.effect("mail") as effect:
            assert not effect.already_done
            made.append("mail")

    world.declare(process)
    monkeypatch.setattr(world.store, name, Flaky(world.store, name, times=2, answer_lost=answer_lost))
    job = await world.executed()
    assert job.state is JobState.SUCCEEDED, job.failed_reason
    assert (made, world.effects(), world.events()) == (["mail"], [("mail", "CONFIRMED")], [])


async def test_without_an_answer_to_the_reservation_the_effect_is_not_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        async with context.effect("mail") as effect:
            if not effect.already_done:
                made.append("mail")

    world.declare(process)
    monkeypatch.setattr("durable_jobs.effects.ledgers.ASK_AGAIN_S", 0.001)
    monkeypatch.setattr(
        world.store, "begin_effect", Flaky(world.store, "begin_effect", times=8, answer_lost=False)
    )
    job = await world.executed()
    assert (job.state, job.retryable, made) == (JobState.FAILED, True, [])
    assert job.failed_reason == "StoreUnavailable: the database does not answer"
    assert (await world.retried(job)).state is JobState.SUCCEEDED
    assert made == ["mail"]


async def test_a_confirmation_is_tried_until_the_execution_has_to_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the effect is unknown, which is the truth as far as the database knows."""

    def process(_: Request, context: JobContext) -> None:
        with context.effect("mail") as effect:
            assert not effect.already_done

    world.declare(process)
    monkeypatch.setattr(
        world.store, "confirm_effect", Flaky(world.store, "confirm_effect", times=999, answer_lost=False)
    )
    job = await world.executed(timeout=timedelta(milliseconds=500))
    assert job.failed_reason == "timed out after 0.5 s"
    with job_tenant_scope(TENANT):
        assert [str(view.state) for view in await world.store.effects()] == ["UNKNOWN"]
