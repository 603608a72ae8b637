"""T-14 to T-17: a processor asks before its effect, and the effect is made once."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from durable_jobs import BadInput, JobContext, JobState, Skipped
from durable_jobs.effects import Effect
from durable_jobs.effects.keys import provider_key
from durable_jobs.jobs import ClaimedJob
from tests.integration.effects.world import Request, World


class Sent:
    """A processor that sends, once for each key; the effect is a list."""

    def __init__(self, key: str | None = "invoice 7") -> None:
        self.sent: list[str] = []
        self.seen: list[Effect] = []
        self.key = key
        self.fails_after = 0

    async def process(self, request: Request, context: JobContext) -> Any:
        named = ("MAIL",) if self.key is None else (self.key, "MAIL")
        async with context.effect(*named) as effect:
            self.seen.append(effect)
            if effect.already_done:
                return Skipped("already sent", effect.original_job_id)
            self.sent.append(request.what)
            effect.result = {"number": len(self.sent)}
        if self.fails_after:
            self.fails_after -= 1
            raise ConnectionError("after the mail")
        return effect.result

    def in_a_thread(self, request: Request, context: JobContext) -> Any:
        named = ("MAIL",) if self.key is None else (self.key, "MAIL")
        with context.effect(*named) as effect:
            self.seen.append(effect)
            if effect.already_done:
                return Skipped("already sent", effect.original_job_id)
            assert threading.current_thread() is not threading.main_thread()
            self.sent.append(request.what)
            effect.result = {"number": len(self.sent)}
        if self.fails_after:
            self.fails_after -= 1
            raise ConnectionError("after the mail")
        return effect.result


@pytest.fixture(params=["async", "thread"])
def mail(request: pytest.FixtureRequest, world: World) -> Sent:
    mail = Sent()

    async def process(asked: Request, context: JobContext) -> Any:
        return await mail.process(asked, context)

    def in_a_thread(asked: Request, context: JobContext) -> Any:
        return mail.in_a_thread(asked, context)

    world.declare(process if request.param == "async" else in_a_thread)
    return mail


async def test_t14_the_effect_is_reserved_before_it_is_made(world: World) -> None:
    before: list[list[tuple[str, str]]] = []

    async def process(_: Request, context: JobContext) -> None:
        async with context.effect("invoice 7", "MAIL") as effect:
            assert not effect.already_done
            before.append(world.effects())

    world.declare(process)
    job = await world.executed()
    assert job.state is JobState.SUCCEEDED, job.failed_reason
    assert before == [[("MAIL", "RESERVED")]]
    assert world.effects() == [("MAIL", "CONFIRMED")]


async def test_t14_a_block_that_does_not_ask_fails_its_job_the_first_time(world: World) -> None:
    async def process(_: Request, context: JobContext) -> None:
        async with context.effect("invoice 7", "MAIL"):
            pass

    world.declare(process)
    job = await world.executed()
    assert (job.state, job.retryable) == (JobState.FAILED, False)
    assert job.failed_reason is not None
    assert job.failed_reason.startswith("EffectNotChecked: the block of effect MAIL did not look at")


async def test_t15_the_same_payload_twice_is_one_effect(world: World, mail: Sent) -> None:
    first = await world.executed()
    second = await world.executed()
    assert first.result == {"status": "OK", "value": {"number": 1}}
    assert world.skipped(second) == {"reason": "already sent", "originalJobId": str(first.job_id)}
    assert mail.sent == ["it"]
    assert mail.seen[1].result == {"number": 1}


async def test_t15_many_at_once_are_one_effect(world: World, mail: Sent) -> None:
    jobs = [await world.submit() for _ in range(20)]
    await world.work()
    done = [await world.get(job) for job in jobs]
    assert {job.state for job in done} == {JobState.SUCCEEDED}
    assert sum(job.result["status"] == "OK" for job in done) == 1
    assert mail.sent == ["it"]
    assert world.effects() == [("MAIL", "CONFIRMED")]


async def test_t16_a_retry_with_the_same_key_is_skipped(world: World, mail: Sent) -> None:
    mail.fails_after = 1
    failed = await world.executed(idempotency_key="k")
    assert failed.state is JobState.FAILED
    retry = await world.retried(failed)
    assert retry.idempotency_key == "k"
    assert retry.state is JobState.SUCCEEDED
    assert world.skipped(retry) == {"reason": "already sent", "originalJobId": str(failed.job_id)}
    assert mail.sent == ["it"]


def test_t17_tenant_key_and_type_are_unique(owner_connection: psycopg.Connection, database_url: str) -> None:
    insert = (
        "INSERT INTO job_effects (tenant_id, key, effect_type, job_id, root_job_id, state, reservation,"
        " confirmed_at) VALUES (%s, %s, %s, gen_random_uuid(), gen_random_uuid(), 'CONFIRMED',"
        " gen_random_uuid(), now())"
    )
    owner_connection.execute(insert, ["acme", "k", "MAIL"])
    for other in (["other", "k", "MAIL"], ["acme", "other", "MAIL"], ["acme", "k", "SMS"]):
        owner_connection.execute(insert, other)
    with pytest.raises(psycopg.errors.UniqueViolation):
        owner_connection.execute(insert, ["acme", "k", "MAIL"])


async def test_a_step_without_a_key_is_found_by_retries_and_resubmissions(world: World, mail: Sent) -> None:
    mail.key = None
    mail.fails_after = 3
    first = await world.executed()
    # A later attempt finds it, and fails after it for another reason.
    skipped = await world.retried(first)
    assert world.skipped(skipped) == {"reason": "already sent", "originalJobId": str(first.job_id)}
    other = await world.executed()
    assert other.state is JobState.FAILED
    assert mail.sent == ["it", "it"]
    anew = await world.resubmitted(other)
    assert world.skipped(anew) == {"reason": "already sent", "originalJobId": str(other.job_id)}
    assert mail.sent == ["it", "it"]
    assert {effect.provider_key for effect in mail.seen} == {
        provider_key("acme", str(job.job_id), "MAIL") for job in (first, other)
    }


async def test_three_steps_resume_after_what_is_done(world: World) -> None:
    made: list[str] = []
    fails = ["call", "row"]

    async def process(_: Request, context: JobContext) -> list[str]:
        for step in ("mail", "call", "row"):
            async with context.effect(step) as effect:
                if not effect.already_done:
                    made.append(step)
            if fails and fails[0] == step:
                fails.pop(0)
                raise TimeoutError(step)
        return made

    world.declare(process)
    job = await world.executed()
    job = await world.retried(job)
    job = await world.retried(job)
    assert job.state is JobState.SUCCEEDED
    assert made == ["mail", "call", "row"]


async def test_a_result_that_is_no_json_or_too_large_never_undoes_the_effect(world: World) -> None:
    values: list[Any] = [object, "x" * 100_000, "a\x00b"]

    async def process(request: Request, context: JobContext) -> None:
        async with context.effect(request.what, "MAIL") as effect:
            if not effect.already_done:
                effect.result = values[int(request.what)]

    world.declare(process)
    for n in range(3):
        assert (await world.executed(what=str(n))).state is JobState.SUCCEEDED
    assert [row["state"] for row in world.probe.effects()] == ["CONFIRMED"] * 3
    results = [row["result"] for row in world.probe.effects()]
    assert results[1:] == [None, "a\N{REPLACEMENT CHARACTER}b"]


async def test_the_same_effect_inside_itself_is_refused(world: World) -> None:
    made: list[int] = []

    async def process(_: Request, context: JobContext) -> None:
        async with context.effect("k", "MAIL", on_unknown="repeat") as outer:
            assert not outer.already_done
            async with context.effect("k", "MAIL", on_unknown="repeat") as inner:
                assert not inner.already_done
                made.append(1)

    world.declare(process)
    job = await world.executed()
    assert job.failed_reason is not None
    assert "already open in this job" in job.failed_reason
    assert made == []


async def test_a_block_is_entered_once(world: World) -> None:
    made: list[int] = []

    async def process(_: Request, context: JobContext) -> None:
        block = context.effect("k", "MAIL")
        for _ in range(2):
            async with block as effect:
                if not effect.already_done:
                    made.append(1)

    world.declare(process)
    job = await world.executed()
    assert job.failed_reason is not None
    assert "is entered again: call context.effect(...) anew" in job.failed_reason
    assert made == [1]


async def test_with_on_the_event_loop_is_refused(world: World) -> None:
    async def process(_: Request, context: JobContext) -> None:
        with context.effect("k", "MAIL"):
            pass

    world.declare(process)
    job = await world.executed()
    assert job.failed_reason is not None
    assert "use `async with context.effect(...)`" in job.failed_reason
    assert world.effects() == []


async def test_an_async_processor_on_a_loop_of_its_own_reaches_the_store(world: World) -> None:
    """As a Prefect flow does that is called from a thread."""

    def process(_: Request, context: JobContext) -> None:
        async def inner() -> None:
            async with context.effect("k", "MAIL") as effect:
                assert not effect.already_done

        asyncio.run(inner())

    world.declare(process)
    job = await world.executed()
    assert job.state is JobState.SUCCEEDED, job.failed_reason
    assert world.effects() == [("MAIL", "CONFIRMED")]


JOB = ClaimedJob(
    uuid4(),
    uuid4(),
    "acme",
    "T",
    "q",
    "{}",
    1,
    0,
    3,
    uuid4(),
    None,
    None,
    timedelta(minutes=1),  # type: ignore[arg-type]
)


async def test_what_cannot_be_right_is_refused_before_anything_is_done(world: World) -> None:
    context = JobContext(JOB, lambda _job, _text: None, effects=world.store)
    for arguments, options, message in (
        (("", "MAIL"), {}, "key of an effect ''"),
        (("k" * 256, "MAIL"), {}, "1 to 255 printable"),
        (("a\x00b", "MAIL"), {}, "printable"),
        (("k", "M" * 101), {}, "1 to 100 printable"),
        (("M" * 101,), {}, "1 to 100 printable"),
        ((7, "MAIL"), {}, "it must be text"),
        (("k", "MAIL"), {"on_unknown": "ignore"}, "on_unknown is 'ignore'"),
        (("k", "MAIL"), {"probe": True}, "probe is True"),
        (("k", "MAIL"), {"releases": (ValueError(),)}, "releases has ValueError"),
        (("k", "MAIL"), {"wait": timedelta(seconds=-1)}, "wait is"),
    ):
        with pytest.raises(BadInput, match=message):
            context.effect(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="has no store for effects"):
        JobContext(JOB, lambda _job, _text: None).effect("k", "MAIL")


def test_the_key_for_the_provider_never_changes() -> None:
    key = provider_key("acme", "invoice 7", "MAIL")
    assert key == "1f22b030-25bf-59e0-a081-ef212f2df1c2"
    assert key == provider_key("acme", "invoice 7", "MAIL")
    others = {provider_key("other", "invoice 7", "MAIL"), provider_key("acme", "invoice 7", "SMS")}
    assert key not in others
    assert len(others) == 2
