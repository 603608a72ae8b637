"""Jobs that run alone: each gets one flow run, whatever happens between the store and Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Crashed, Running

from durable_jobs import JobState, register_job, register_jobs
from durable_jobs.errors import DurableJobsError, InvalidPayload, UnknownJobType
from durable_jobs.flows.execute_job import execute_job
from durable_jobs.flows.submit_job import submit_job
from durable_jobs.jobs import Job
from durable_jobs.tasks.dispatching import dispatch_if_prefect_answers
from durable_jobs.tasks.lost_runs import clear_up_runs
from durable_jobs.tasks.runs import start_run
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.integration.flows.prefect_records import Records
from tests.support.tcp_proxy import proxied

ISOLATED = "execute-job/isolated"

pytestmark = pytest.mark.timeout(300)  # the first test starts a Prefect server


@pytest.fixture
def failing_api() -> Iterator[str]:
    """Something that answers 500 to everything."""

    class Answer(BaseHTTPRequestHandler):
        def _fail(self) -> None:
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = _fail  # noqa: N815 -- the names that the server calls

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()


@pytest.fixture(autouse=True)
def scope() -> Iterator[None]:
    with job_tenant_scope("default"):
        yield


class Desk:
    """Dispatches, and looks at what came of it."""

    def __init__(self, runtime: OpenRuntime, records: Records, ids: dict[str, UUID]) -> None:
        self.runtime = runtime
        self.records = records
        self.ids = ids

    async def dispatch(self) -> int:
        return await dispatch_if_prefect_answers(self.runtime)

    async def runs(self) -> list[FlowRun]:
        return await self.records.runs_of(self.ids[ISOLATED])

    async def job(self, job: Job) -> Job:
        return await self.runtime.store.get(job.job_id)


@pytest.fixture
async def desk(runtime: OpenRuntime, records: Records, deployed: dict[str, UUID]) -> Desk:
    return Desk(runtime, records, deployed)


async def test_exe_1_a_and_b_while_prefect_refuses_a_job_waits_and_is_dispatched_once(
    desk: Desk, failing_api: str
) -> None:
    job = await register_job("HEAVY", {})
    for url in ("http://127.0.0.1:9/api", failing_api):
        with temporary_settings({PREFECT_API_URL: url}):
            assert await desk.dispatch() == 0
    assert (await desk.job(job)).dispatch_count == 0
    assert [await desk.dispatch() for _ in range(3)] == [1, 0, 0]
    [run] = await desk.runs()
    assert run.parameters == {"job_id": str(job.job_id), "tenant": "default"}
    assert run.idempotency_key == f"{job.job_id}:1"
    assert (await desk.job(job)).flow_run_id == run.id


async def test_exe_1_c_an_answer_that_is_lost_starts_no_second_run(desk: Desk) -> None:
    job = await register_job("HEAVY", {})
    async with proxied(PREFECT_API_URL.value(), end_of_answer=b"") as proxy:
        proxy.lose_the_answer_to("create_flow_run")
        with temporary_settings({PREFECT_API_URL: proxy.url}):
            await desk.dispatch()
        assert proxy.lost_answers == 1
    await desk.dispatch()
    [run] = await desk.runs()
    assert (await desk.job(job)).flow_run_id == run.id


async def test_exe_1_d_killed_between_starting_a_run_and_noting_it_starts_no_second(desk: Desk) -> None:
    job = await register_job("HEAVY", {})
    started = await start_run(ISOLATED, {"job_id": str(job.job_id)}, f"{job.job_id}:1")
    assert await desk.dispatch() == 1
    assert [run.id for run in await desk.runs()] == [started.id]
    assert (await desk.job(job)).flow_run_id == started.id


async def test_two_dispatchers_keep_within_the_bound(desk: Desk) -> None:
    await register_jobs("HEAVY", [{} for _ in range(6)])
    await asyncio.gather(*(desk.dispatch() for _ in range(4)))
    assert len(await desk.runs()) == 2


async def stale(owner: psycopg.Connection) -> None:
    owner.execute("UPDATE job_history SET updated_at = now() - interval '1 hour'")


@pytest.mark.parametrize("fate", ["deleted", "crashed"])
async def test_a_run_that_ended_before_it_claimed_is_replaced_once(
    desk: Desk, client: PrefectClient, owner: psycopg.Connection, fate: str
) -> None:
    job = await register_job("HEAVY", {})
    await desk.dispatch()
    [first] = await desk.runs()
    if fate == "deleted":
        await client.delete_flow_run(first.id)
    else:
        await client.set_flow_run_state(first.id, Crashed(), force=True)
    assert await desk.dispatch() == 0
    await stale(owner)
    assert [await desk.dispatch() for _ in range(3)] == [1, 0, 0]
    [second] = [run for run in await desk.runs() if run.id != first.id]
    now = await desk.job(job)
    assert (now.flow_run_id, now.dispatch_count) == (second.id, 2)


async def test_a_late_run_is_waited_for(desk: Desk, owner: psycopg.Connection) -> None:
    await register_job("HEAVY", {})
    await desk.dispatch()
    for _ in range(2):
        await stale(owner)
        assert await desk.dispatch() == 0
    assert len(await desk.runs()) == 1


async def test_a_run_whose_process_died_before_it_claimed_is_closed_and_replaced(
    desk: Desk, client: PrefectClient, owner: psycopg.Connection
) -> None:
    await register_job("HEAVY", {})
    await desk.dispatch()
    [first] = await desk.runs()
    await client.set_flow_run_state(first.id, Running(), force=True)
    await stale(owner)
    assert await desk.dispatch() == 0
    soon = desk.runtime.settings.model_copy(update={"running_stale_after": timedelta(milliseconds=1)})
    assert (await clear_up_runs(desk.runtime._replace(settings=soon))).lost == 1
    assert await desk.dispatch() == 1
    assert len(await desk.runs()) == 2


async def test_exe_2_two_runs_for_one_job_one_executes(desk: Desk) -> None:
    job = await register_job("HEAVY", {"seconds": 0.5})
    answers = await asyncio.gather(execute_job(job.job_id), execute_job(job.job_id))
    assert sorted(answers) == ["SUCCEEDED", "the job was not waiting"]
    done = await desk.job(job)
    assert (done.state, done.claim_count) == (JobState.SUCCEEDED, 1)
    assert await execute_job(job.job_id) == "the job was not waiting"
    assert await execute_job(uuid4()) == "the job was not waiting"
    assert await desk.job(job) == done


async def test_a_job_is_submitted_by_form(desk: Desk) -> None:
    job_id = UUID(await submit_job("HEAVY", {"seconds": 1}, idempotency_key="k"))
    assert await submit_job("HEAVY", {"seconds": 1}, idempotency_key="k") == str(job_id)
    job = await desk.runtime.store.get(job_id)
    assert (job.state, job.payload["seconds"], job.submitted_by) == (JobState.PENDING, 1, "prefect")


@pytest.mark.parametrize(
    ("name", "data", "error", "reason"),
    [
        ("HEVY", {}, UnknownJobType, "did you mean HEAVY"),
        ("HEAVY", {"seconds": "long"}, InvalidPayload, "seconds"),
    ],
)
async def test_a_form_that_cannot_be_right_is_refused_with_its_reason(
    desk: Desk, name: str, data: dict[str, Any], error: type[DurableJobsError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        await submit_job(name, data)
