"""An effect in the caller's own transaction: recorded with it, or neither is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from durable_jobs import JobContext, JobState, Skipped
from durable_jobs.stores.protocols import Note
from durable_jobs.tenants import job_tenant_scope
from tests.integration.effects.world import TENANT, Request, World
from tests.support.connections import (
    ASYNC,
    LETTER,
    SYNC,
    psycopg_async,
    statement,
    with_driver,
)
from tests.support.eventually import eventually

Letters = Callable[[], list[str]]


@pytest.fixture(
    params=[("async", name) for name in ASYNC] + [("thread", name) for name in SYNC], ids="-".join
)
def writes(request: pytest.FixtureRequest, world: World, database_url: str) -> list[BaseException | None]:
    """Declare a processor that inserts a letter once; what is in the list is raised, in turn, after it."""
    raised: list[BaseException | None] = []
    way, name = request.param

    async def process(_: Request, context: JobContext) -> Any:
        async with ASYNC[name](database_url) as connection:
            async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                if effect.already_done:
                    return Skipped("written", effect.original_job_id)
                await connection.execute(statement(connection))
                effect.result = {"pages": 1}
            if raised and (error := raised.pop(0)) is not None:
                raise error
            return effect.result

    def in_a_thread(_: Request, context: JobContext) -> Any:
        with SYNC[name](database_url) as connection:
            with context.effect("letter 7", "LETTER", connection=connection) as effect:
                if effect.already_done:
                    return Skipped("written", effect.original_job_id)
                connection.execute(statement(connection))
                effect.result = {"pages": 1}
            if raised and (error := raised.pop(0)) is not None:
                raise error
            return effect.result

    world.declare(process if way == "async" else in_a_thread)
    return raised


async def test_effect_and_record_are_one_transaction(
    world: World, letters: Letters, writes: list[BaseException | None]
) -> None:
    writes += [ConnectionError("rolled back")]
    failed = await world.executed()
    assert failed.state is JobState.FAILED
    assert failed.failed_reason == "ConnectionError: rolled back"
    assert (letters(), world.effects()) == ([], [])
    written = await world.retried(failed)
    assert written.result == {"status": "OK", "value": {"pages": 1}}, written.failed_reason
    assert (letters(), world.effects()) == (["dear"], [("LETTER", "CONFIRMED")])
    assert [row["result"] for row in world.probe.effects()] == [{"pages": 1}]
    again = await world.executed()
    assert world.skipped(again) == {"reason": "written", "originalJobId": str(written.job_id)}
    assert letters() == ["dear"]


async def test_twins_at_once_wait_for_each_others_transaction(
    world: World, letters: Letters, writes: list[BaseException | None]
) -> None:
    writes += [ConnectionError("rolled back")]
    jobs = [await world.submit() for _ in range(6)]
    await world.work()
    states = [(await world.get(job)).state for job in jobs]
    assert sorted(states) == [JobState.FAILED, *[JobState.SUCCEEDED] * 5]
    assert (letters(), world.effects()) == (["dear"], [("LETTER", "CONFIRMED")])


async def test_an_error_caught_outside_of_the_block_undoes_effect_and_record(
    world: World, letters: Letters, database_url: str
) -> None:
    async def process(_: Request, context: JobContext) -> None:
        async with psycopg_async(database_url) as connection:
            try:
                async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                    assert not effect.already_done
                    await connection.execute(LETTER)
                    raise ValueError("after the insert")
            except ValueError:
                context.logger.info("caught; the transaction goes on and is committed")

    world.declare(process)
    assert (await world.executed()).state is JobState.SUCCEEDED
    assert (letters(), world.effects()) == ([], [])


@pytest.mark.parametrize("given_up", ["before", "inside"])
async def test_an_execution_that_was_given_up_leaves_no_effect(
    world: World, letters: Letters, database_url: str, given_up: str
) -> None:
    inserted: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        async with psycopg_async(database_url) as connection:
            if given_up == "before":
                await give_up(context)
            async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                assert not effect.already_done
                await connection.execute(LETTER)
                inserted.append("letter")
                if given_up == "inside":
                    await give_up(context)

    async def give_up(context: JobContext) -> None:
        await world.store.fail_overdue(margin=timedelta(0), now=far)

    world.declare(process)
    job = await world.submit()
    far = job.created_at + timedelta(days=1)
    await world.work()
    job = await world.get(job)
    assert (job.state, job.failed_reason) == (JobState.FAILED, "timed out after 3600 s")
    assert inserted == ([] if given_up == "before" else ["letter"])
    assert (letters(), world.effects()) == ([], [])


async def test_a_job_cannot_be_given_up_between_the_block_and_the_commit(
    world: World, letters: Letters, database_url: str
) -> None:
    """Whoever gives it up waits for the commit, or passes it over, so no effect outlives its claim."""
    seen: list[str] = []

    async def process(_: Request, context: JobContext) -> None:
        async with psycopg_async(database_url) as connection:
            async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                assert not effect.already_done
                await connection.execute(LETTER)
            far = job.created_at + timedelta(days=1)
            assert await world.store.fail_overdue(margin=timedelta(0), now=far) == []
            # Progress is no decision about the job.
            await world.store.note([Note(context._job, '{"current": 1}')])
            with job_tenant_scope(TENANT):
                cancelling = asyncio.create_task(world.store.cancel(job.job_id))
                waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                await eventually(lambda: world.probe.run(waiting) != [{"count": 0}])
            assert not cancelling.done()
            seen.append("waits")
        await cancelling

    world.declare(process)
    job = await world.submit()
    await world.work()
    assert seen == ["waits"]
    assert (letters(), world.effects()) == (["dear"], [("LETTER", "CONFIRMED")])


async def test_a_long_transaction_before_the_block_ends_holds_up_nobody(
    world: World, letters: Letters, database_url: str
) -> None:
    async def process(_: Request, context: JobContext) -> None:
        async with (
            psycopg_async(database_url) as connection,
            context.effect("letter 7", "LETTER", connection=connection) as effect,
        ):
            assert not effect.already_done
            far = job.created_at + timedelta(days=1)
            assert await world.store.fail_overdue(margin=timedelta(0), now=far) == [job.job_id]

    world.declare(process)
    job = await world.submit()
    await world.work()
    assert (await world.get(job)).state is JobState.FAILED
    assert world.effects() == []


async def test_a_connection_that_commits_each_statement_is_refused(
    world: World, letters: Letters, database_url: str
) -> None:
    async def psycopg_autocommit(_: Request, context: JobContext) -> None:
        async with (
            await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
            context.effect("letter 7", "LETTER", connection=connection) as effect,
        ):
            assert not effect.already_done

    async def sqlalchemy_autocommit(_: Request, context: JobContext) -> None:
        engine = create_async_engine(
            with_driver(database_url, "psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT"
        )
        async with (
            engine.connect() as connection,
            context.effect("letter 7", "LETTER", connection=connection) as effect,
        ):
            assert not effect.already_done

    world.declare(psycopg_autocommit, "ONE")
    world.declare(sqlalchemy_autocommit, "TWO")
    for name in ("ONE", "TWO"):
        job = await world.executed(name)
        assert job.failed_reason is not None
        assert job.failed_reason.startswith("BadInput: connection commits every statement by itself")
    assert world.effects() == []


async def test_a_connection_of_another_kind_is_refused(world: World, database_url: str) -> None:
    async def sync_on_the_loop(_: Request, context: JobContext) -> None:
        with psycopg.connect(database_url) as connection:
            async with context.effect("k", "LETTER", connection=connection):
                pass

    async def no_connection(_: Request, context: JobContext) -> None:
        async with context.effect("k", "LETTER", connection="postgresql://"):
            pass

    def async_in_a_thread(_: Request, context: JobContext) -> None:
        engine = create_async_engine(with_driver(database_url, "psycopg"), poolclass=NullPool)
        with context.effect("k", "LETTER", connection=engine.connect()):
            pass

    for name, processor in (("ONE", sync_on_the_loop), ("TWO", no_connection), ("THREE", async_in_a_thread)):
        world.declare(processor, name)
        job = await world.executed(name)
        assert job.failed_reason is not None
        assert "context.effect(...)` takes a" in job.failed_reason, job.failed_reason
    assert world.effects() == []


async def test_another_database_is_refused_with_the_way_out(world: World, admin_url: str) -> None:
    elsewhere = psycopg.conninfo.make_conninfo(admin_url, dbname="postgres")

    async def process(_: Request, context: JobContext) -> None:
        async with (
            await psycopg.AsyncConnection.connect(elsewhere) as connection,
            context.effect("k", "LETTER", connection=connection) as effect,
        ):
            assert not effect.already_done

    world.declare(process)
    job = await world.executed()
    assert job.failed_reason is not None
    assert "it must lead to the jobs' database" in job.failed_reason


async def test_a_twin_that_does_not_commit_is_waited_for_only_so_long(
    world: World, letters: Letters, database_url: str
) -> None:
    async def process(request: Request, context: JobContext) -> None:
        if request.what == "holder":
            async with psycopg_async(database_url) as connection:
                async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                    assert not effect.already_done
                holding.set()
                await let_go.wait()
            return
        await holding.wait()
        wait = timedelta(milliseconds=300)
        try:
            if request.what == "within":
                async with (
                    psycopg_async(database_url) as connection,
                    context.effect("letter 7", "LETTER", connection=connection, wait=wait) as effect,
                ):
                    assert effect.already_done
            else:
                async with context.effect("letter 7", "LETTER", wait=wait) as effect:
                    assert effect.already_done
        finally:
            left.append(request.what)
            if len(left) == 2:
                let_go.set()

    holding, let_go, left = asyncio.Event(), asyncio.Event(), list[str]()
    world.declare(process)
    holder, *others = [await world.submit(what=what) for what in ("holder", "within", "outside")]
    await world.work()
    assert (await world.get(holder)).state is JobState.SUCCEEDED
    for job in others:
        ended = await world.get(job)
        assert (ended.state, ended.retryable) == (JobState.FAILED, True)
        assert ended.failed_reason is not None
        assert ended.failed_reason.startswith("EffectHeld: "), ended.failed_reason
        assert (await world.retried(ended)).state is JobState.SUCCEEDED


async def test_the_callers_transaction_keeps_its_own_settings_and_rows(
    world: World, letters: Letters, database_url: str
) -> None:
    seen: list[Any] = []

    async def process(_: Request, context: JobContext) -> None:
        async with await psycopg.AsyncConnection.connect(database_url, row_factory=dict_row) as connection:
            await connection.execute("SET LOCAL lock_timeout = '7s'")
            async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                assert not effect.already_done
            cursor = await connection.execute(
                "SELECT current_setting('lock_timeout') AS lock_timeout,"
                " current_setting('durable_jobs.tenant_ids') AS tenants"
            )
            seen.append(await cursor.fetchone())

    world.declare(process)
    assert (await world.executed()).state is JobState.SUCCEEDED
    assert seen == [{"lock_timeout": "7s", "tenants": "{}"}]


@pytest.mark.parametrize(
    "level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
)
async def test_in_a_stricter_isolation_it_is_once_too_and_the_callers_errors_are_the_callers(
    world: World, letters: Letters, database_url: str, level: psycopg.IsolationLevel
) -> None:
    """A twin that committed after the transaction's snapshot is a serialization failure; a retry sees it."""

    async def process(request: Request, context: JobContext) -> Any:
        async with await psycopg.AsyncConnection.connect(database_url) as connection:
            await connection.set_isolation_level(level)
            await connection.execute("SELECT count(*) FROM letters")
            if request.what == "second":
                second_looked.set()
                await first_committed.wait()
            else:
                await second_looked.wait()
            async with context.effect("letter 7", "LETTER", connection=connection) as effect:
                if effect.already_done:
                    return Skipped("written", effect.original_job_id)
                await connection.execute(LETTER)
        first_committed.set()
        return None

    second_looked, first_committed = asyncio.Event(), asyncio.Event()
    world.declare(process)
    first, second = [await world.submit(what=what) for what in ("first", "second")]
    await world.work()
    assert (await world.get(first)).state is JobState.SUCCEEDED
    failed = await world.get(second)
    assert failed.failed_reason is not None
    assert failed.failed_reason.startswith("SerializationFailure"), failed.failed_reason
    assert world.skipped(await world.retried(failed)) is not None
    assert letters() == ["dear"]


@pytest.mark.parametrize("policy", ["repeat", "stop", "happened", "did not happen"])
async def test_an_unknown_call_is_settled_by_its_policy_in_a_transaction_too(
    world: World, letters: Letters, database_url: str, policy: str
) -> None:
    async def outside(_: Request, context: JobContext) -> None:
        async with context.effect("letter 7", "LETTER") as effect:
            assert not effect.already_done
            raise TimeoutError

    async def within(_: Request, context: JobContext) -> Any:
        options: dict[str, Any] = {
            "repeat": {"on_unknown": "repeat"},
            "stop": {},
            "happened": {"probe": lambda _: True},
            "did not happen": {"probe": lambda _: False},
        }[policy]
        engine = create_async_engine(with_driver(database_url, "psycopg"), poolclass=NullPool)
        async with (
            engine.begin() as connection,
            context.effect("letter 7", "LETTER", connection=connection, **options) as effect,
        ):
            if effect.already_done:
                return Skipped("written", effect.original_job_id)
            await connection.execute(text(LETTER))
        return None

    world.declare(outside, "OUTSIDE")
    world.declare(within, "WITHIN")
    unknown = await world.executed("OUTSIDE")
    assert world.effects() == [("LETTER", "UNKNOWN")]
    job = await world.executed("WITHIN")
    if policy == "stop":
        assert (job.state, job.retryable, letters()) == (JobState.FAILED, False, [])
        assert world.effects() == [("LETTER", "UNKNOWN")]
        assert world.events() == ["jobs.effect.unknown"]
        return
    assert world.effects() == [("LETTER", "CONFIRMED")]
    assert letters() == ([] if policy == "happened" else ["dear"])
    if policy == "happened":
        assert world.skipped(job) == {"reason": "written", "originalJobId": str(unknown.job_id)}
