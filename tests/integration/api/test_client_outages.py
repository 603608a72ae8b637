"""A client over outages: what is safe is repeated, nothing is made twice, and waiting goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from durable_jobs import AsyncJobsClient, JobState
from durable_jobs.api.models import JobStatus
from durable_jobs.client import ApiUnavailable, RemoteQueueFull, WaitTimeout
from durable_jobs.embedded.ports import free_port
from durable_jobs.stores.postgres import PgJobsStore
from tests.integration.api.conftest import WORK
from tests.support.api_server import SECRET, ApiServer, served, token
from tests.support.eventually import eventually
from tests.support.jobs import enter, failed, succeeded
from tests.support.probes import PgProbe
from tests.support.tcp_proxy import TcpProxy, proxied

PATIENT = timedelta(seconds=90)
BRIEF = timedelta(milliseconds=200)


@pytest.fixture
async def lossy(api: ApiServer) -> AsyncIterator[TcpProxy]:
    """Something before the API that can lose an answer; every answer is a JSON object."""
    async with proxied(api.url, end_of_answer=b"}") as proxy:
        yield proxy


def client_of(url: str, patience: timedelta = PATIENT) -> AsyncJobsClient:
    return AsyncJobsClient(url, token(), patience=patience)


async def test_a_submission_whose_answer_is_lost_is_repeated_and_makes_one_job(
    lossy: TcpProxy, rows: PgProbe
) -> None:
    async with client_of(lossy.url) as client:
        for n in range(1, 4):
            lossy.lose_the_answer_to("POST /jobs")
            made = await client.submit("ECHO", {"text": str(n)})
            assert lossy.lost_answers == n
            assert [row["job_id"] for row in rows.jobs() if row["payload"]["text"] == str(n)] == [made.job_id]
    assert len(rows.jobs()) == 3


async def test_what_could_be_done_twice_is_not_repeated(lossy: TcpProxy, rows: PgProbe) -> None:
    async with client_of(lossy.url) as client:
        made = await client.submit("ECHO", {"text": "x"})
        lossy.lose_the_answer_to("/cancel")
        with pytest.raises(ApiUnavailable, match="whether it was done is not known"):
            await client.cancel(made.job_id)
    assert [row["state"] for row in rows.jobs()] == ["CANCELLED"]


async def test_a_connection_that_never_came_about_is_tried_again_for_everything(api: ApiServer) -> None:
    async with client_of(api.url) as direct:
        made = await direct.submit("ECHO", {"text": "x"})
    # Nobody listens there: a connection is refused, so nothing was sent.
    async with client_of(f"http://127.0.0.1:{free_port()}", BRIEF) as client:
        with pytest.raises(ApiUnavailable) as caught:
            await client.cancel(made.job_id)
    assert "not known" not in str(caught.value)


async def test_a_full_queue_is_waited_for_as_long_as_the_api_asks(api: ApiServer, rows: PgProbe) -> None:
    async with client_of(api.url) as client:
        made = [await client.submit("NARROW") for _ in range(100)]
        async with client_of(api.url, BRIEF) as hasty:
            with pytest.raises(RemoteQueueFull) as caught:
                await hasty.submit("NARROW")
        assert (caught.value.queue, caught.value.max_pending, caught.value.exit_code) == ("narrow", 100, 3)
        waiting = asyncio.create_task(client.submit("NARROW"))
        await client.cancel(made[0].job_id)
        assert (await waiting).status is JobState.PENDING
    assert len(rows.jobs()) == 101


async def test_an_outage_of_the_store_is_waited_out(database_url: str, rows: PgProbe) -> None:
    async with proxied(database_url) as database:
        with served(database.url, modules=WORK, DURABLE_JOBS_DATABASE_TIMEOUT="2") as server:
            async with client_of(server.url) as client:
                await client.stats()
                database.cut()
                async with client_of(server.url, BRIEF) as hasty:
                    with pytest.raises(ApiUnavailable):
                        await hasty.stats()
                submitting = asyncio.create_task(client.submit("ECHO", {"text": "x"}))
                reading = asyncio.create_task(client.stats())
                await eventually(lambda: "store is away" in server.log, PATIENT)
                database.restore()
                made, stats = await submitting, await reading
    assert stats.tenant_id == "acme"
    assert [row["job_id"] for row in rows.jobs()] == [made.job_id]


async def test_waiting_follows_the_chain_and_tells_each_change(api: ApiServer, pg_store: PgJobsStore) -> None:
    executor = await enter(pg_store, "wide")
    told: list[JobStatus] = []
    async with client_of(api.url) as client:
        made = await client.submit("ECHO", {"text": "x"})
        waiting = asyncio.create_task(client.wait(made.job_id, timeout=PATIENT, progress=told.append))
        await eventually(lambda: told, PATIENT)
        [job] = (await pg_store.claim(executor, "wide", 1)).jobs
        await eventually(lambda: told[-1].state is JobState.RUNNING, PATIENT)
        await pg_store.finish([failed(job)])
        await eventually(lambda: told[-1].state is JobState.FAILED, PATIENT)
        assert (await client.wait(made.job_id, timeout=PATIENT, chain=False)).state is JobState.FAILED
        child = await client.retry(made.job_id)
        await eventually(lambda: told[-1].job_id == child.job_id, PATIENT)
        [again] = (await pg_store.claim(executor, "wide", 1)).jobs
        await pg_store.finish([succeeded(again, "done")])
        ended = await waiting
    assert (ended.job_id, ended.state, ended.result) == (
        child.job_id,
        JobState.SUCCEEDED,
        {"status": "OK", "value": "done"},
    )
    states = [(status.job_id == child.job_id, str(status.state)) for status in told]
    assert states[:3] == [(False, "PENDING"), (False, "RUNNING"), (False, "FAILED")]
    assert states[-1] == (True, "SUCCEEDED")


async def test_waiting_ends_with_its_time(api: ApiServer) -> None:
    async with client_of(api.url) as client:
        made = await client.submit("ECHO", {"text": "x"})
        with pytest.raises(WaitTimeout, match="is PENDING"):
            await client.wait(made.job_id, timeout=timedelta(milliseconds=300))


async def test_waiting_goes_on_when_the_api_is_killed_and_started_again(
    database_url: str, pg_store: PgJobsStore
) -> None:
    executor = await enter(pg_store, "wide")
    told: list[JobStatus] = []
    with served(database_url, modules=WORK) as server:
        client = client_of(server.url)
        made = await client.submit("ECHO", {"text": "x"})
        waiting = asyncio.create_task(client.wait(made.job_id, timeout=PATIENT, progress=told.append))
        await eventually(lambda: told, PATIENT)
        server.process.kill()
        server.process.wait()
        [job] = (await pg_store.claim(executor, "wide", 1)).jobs
        await pg_store.finish([succeeded(job)])
        assert not waiting.done()
        again = started_again(server, database_url)
        try:
            assert (await waiting).state is JobState.SUCCEEDED
        finally:
            again.stop()
            await client.aclose()


def started_again(server: ApiServer, database_url: str) -> ApiServer:
    """Return a new process in the place of one that was killed."""
    variables = {"DURABLE_JOBS_JWT_SECRET": SECRET, "DURABLE_JOBS_API_RATE_LIMIT": "0"}
    # The option given last counts.
    again = ApiServer(database_url, "--port", str(server.port), modules=WORK, **variables)
    again.port, again.url = server.port, server.url
    return again
