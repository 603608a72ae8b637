"""Both clients do what the API offers, with typed answers and errors; they are made of one source."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from pydantic import BaseModel

from durable_jobs import AsyncJobsClient, JobsClient, JobState
from durable_jobs.client import AccessDenied, ApiProblem, ApiUnavailable, RateLimited
from durable_jobs.client.clients import _Client
from durable_jobs.errors import (
    BadInput,
    IdempotencyConflict,
    InvalidPayload,
    JobNotFound,
    NotAllowed,
    UnknownJobType,
    UnknownQueue,
)
from tests.integration.api.conftest import WORK
from tests.support.api_server import ApiServer, served, token
from tests.support.history import DAY, add_job, add_jobs
from tests.support.probes import PgProbe

Does = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["blocking", "asyncio"])
async def does(request: pytest.FixtureRequest, api: ApiServer) -> AsyncIterator[Does]:
    """Call a method of each client in turn; what gives items gives a list."""
    if request.param == "blocking":
        with JobsClient(api.url, token()) as client:

            def work(name: str, *args: Any, **kwargs: Any) -> Any:
                answer = getattr(client, name)(*args, **kwargs)
                return list(answer) if name.startswith("each_") else answer

            yield lambda name, *args, **kwargs: asyncio.to_thread(work, name, *args, **kwargs)
    else:
        async with AsyncJobsClient(api.url, token()) as aclient:

            async def awork(name: str, *args: Any, **kwargs: Any) -> Any:
                answer = getattr(aclient, name)(*args, **kwargs)
                return [item async for item in answer] if name.startswith("each_") else await answer

            yield awork


class Note(BaseModel):
    text: str


async def test_what_is_submitted_can_be_read(does: Does) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    made = await does("submit", "ECHO", Note(text="hi"), correlation_id="order-1", priority=7, run_at=later)
    assert made.status is JobState.PENDING
    job = await does("get", made.job_id)
    assert (job.payload, job.correlation_id, job.priority, job.run_at) == (
        {"text": "hi", "times": 1},
        "order-1",
        7,
        later,
    )
    assert job.idempotency_key
    status = await does("status", str(made.job_id))
    assert (status.state, status.terminal, status.attempts_left) == (JobState.PENDING, False, 1)
    stats = await does("stats")
    assert (stats.tenant_id, stats.pending, stats.dead_letters) == ("acme", 1, 0)


async def test_a_key_names_one_job(does: Does, rows: PgProbe) -> None:
    key = f"order {uuid4()} \N{SNOWMAN}"
    first, second = [await does("submit", "ECHO", {"text": "x"}, idempotency_key=key) for _ in range(2)]
    assert first.job_id == second.job_id
    assert len(rows.jobs()) == 1
    with pytest.raises(IdempotencyConflict) as caught:
        await does("submit", "ECHO", {"text": "y"}, idempotency_key=key)
    assert caught.value.exit_code == 2


async def test_pages_follow_one_another(does: Does, owner_connection: psycopg.Connection) -> None:
    add_jobs(owner_connection, 25, timedelta(0), job_type="ECHO")
    for _ in range(12):
        add_job(owner_connection, timedelta(hours=1), state="FAILED", job_type="BREAK", queue="wide")
    jobs = await does("each_job", page=7)
    assert len({job.job_id for job in jobs}) == len(jobs) == 37
    page = await does("list_jobs", states=["SUCCEEDED"], job_type="ECHO", limit=20)
    assert (len(page.jobs), page.next_cursor is None) == (20, False)
    rest = await does("list_jobs", states=["SUCCEEDED"], job_type="ECHO", limit=20, cursor=page.next_cursor)
    assert (len(rest.jobs), rest.next_cursor) == (5, None)
    assert await does("each_job", queue="narrow") == []
    assert len(await does("each_failed", retryable=True, page=5)) == 12
    assert len((await does("failed", job_type="BREAK", since=timedelta(hours=2), limit=3)).jobs) == 3
    assert (await does("failed", since=datetime.now(UTC))).jobs == []


async def test_people_on_duty_operate(does: Does, owner_connection: psycopg.Connection) -> None:
    columns: dict[str, Any] = {"job_type": "ECHO", "queue": "wide", "state": "FAILED", "max_retries": 1}
    dead = add_job(owner_connection, timedelta(minutes=5), **columns)
    child = await does("retry", dead)
    assert (child.parent_job_id, (await does("retry", dead)).job_id) == (dead, child.job_id)
    assert [job.job_id for job in (await does("chain", dead)).jobs] == [dead, child.job_id]
    assert (await does("cancel", child.job_id)).state is JobState.CANCELLED
    with pytest.raises(NotAllowed):
        await does("cancel", child.job_id)
    at_limit = add_job(owner_connection, timedelta(minutes=5), **columns | {"retry_count": 1})
    with pytest.raises(NotAllowed, match="ABANDONED"):
        await does("retry", at_limit)
    assert (await does("resubmit", at_limit)).replay_of == at_limit
    assert (await does("pause", "queue", "wide")).paused
    assert [one.name for one in (await does("stats")).paused] == ["wide"]
    assert not (await does("resume", "queue", "wide")).paused
    assert (await does("pause", "type", "ECHO")).by == "ada"
    with pytest.raises(UnknownQueue):
        await does("pause", "queue", "no such?queue")
    workers = await does("workers")
    assert (workers.healthy, workers.workers) == (False, [])
    redis = await does("redis")
    assert (redis.configured, redis.healthy) == (False, True)
    names = {queue["name"] for queue in (await does("config")).queues}
    assert {"wide", "narrow"} <= names


async def test_what_is_over_its_time_goes(does: Does, owner_connection: psycopg.Connection) -> None:
    add_jobs(owner_connection, 9, 40 * DAY)
    assert (await does("purgeable", older_than=timedelta(days=35))).jobs == 9
    assert (await does("purgeable", older_than=timedelta(days=45))).jobs == 0
    assert (await does("purge", dry_run=True)).jobs == 9
    assert (await does("purge")).jobs == 9
    assert (await does("purgeable")).jobs == 0


async def test_what_is_refused_is_a_typed_error_with_its_problem(does: Does) -> None:
    with pytest.raises(JobNotFound):
        await does("get", uuid4())
    with pytest.raises(JobNotFound):
        await does("get", "../../jobs/stats")
    with pytest.raises(UnknownJobType, match="NEVER_SEEN"):
        await does("submit", "NEVER_SEEN")
    with pytest.raises(BadInput):
        await does("submit", "ECHO", {"text": "x"}, priority=1_000)
    with pytest.raises(InvalidPayload) as caught:
        await does("submit", "ECHO", {"text": 7})
    problem = caught.value.__cause__
    assert isinstance(problem, ApiProblem)
    assert (problem.status, problem.name, problem.errors[0]["field"]) == (400, "invalid-payload", "data.text")
    assert problem.request_id


def test_who_may_not_is_told(api: ApiServer) -> None:
    with JobsClient(api.url, "not a token") as client, pytest.raises(AccessDenied):
        client.stats()
    from durable_jobs.api.callers import Scope

    with (
        JobsClient(api.url, token(scopes=[Scope.SUBMIT])) as client,
        pytest.raises(AccessDenied, match="read"),
    ):
        client.stats()


def test_the_rate_limit_is_told_when_it_cannot_be_waited_for(database_url: str) -> None:
    with (
        served(database_url, modules=WORK, DURABLE_JOBS_API_RATE_LIMIT="2") as server,
        JobsClient(server.url, token(), patience=timedelta(milliseconds=100)) as client,
    ):
        for _ in range(2):
            client.submit("ECHO", {"text": "x"})
        with pytest.raises(RateLimited) as caught:
            client.submit("ECHO", {"text": "x"})
    assert caught.value.exit_code == 3


def test_a_client_never_shows_its_token_and_refuses_what_is_no_address() -> None:
    client = JobsClient("http://127.0.0.1:9", "invented-token", patience=timedelta(milliseconds=10))
    assert "invented" not in f"{client!r} {vars(client)}"
    with pytest.raises(ApiUnavailable) as caught:
        client.stats()
    assert "invented" not in str(caught.value)
    client.close()
    for url in ("localhost:8000", "ftp://host", "http://", "not a url"):
        with pytest.raises(BadInput):
            JobsClient(url)


@pytest.mark.parametrize("bad", ["", "invented\n", " invented", "invent\u00e9d"])
def test_what_can_be_no_token_is_refused_and_not_shown(bad: str) -> None:
    with pytest.raises(BadInput, match="the token") as caught:
        JobsClient("http://127.0.0.1:9", bad)
    assert "invent" not in str(caught.value)


def test_a_password_in_the_address_is_not_shown() -> None:
    with JobsClient("http://user:invented@127.0.0.1:9") as client:
        assert repr(client) == "JobsClient('http://127.0.0.1:9')"


class Elsewhere(BaseHTTPRequestHandler):
    """Something that is no API; what it is asked to delete takes it longer than a client's patience."""

    def do_GET(self) -> None:
        self.answer(b"<html>Welcome</html>")

    def do_DELETE(self) -> None:
        time.sleep(1.5)
        self.answer(b'{"target": "db", "dryRun": false, "jobs": 7}')

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_answer_of_something_else_is_told_as_that(elsewhere: str) -> None:
    with (
        JobsClient(elsewhere) as client,
        pytest.raises(ApiProblem, match="not as the API of durable-jobs does"),
    ):
        client.stats()


def test_a_purge_may_take_longer_than_the_patience_for_an_api_that_is_away(elsewhere: str) -> None:
    with JobsClient(elsewhere, patience=timedelta(milliseconds=100)) as client:
        assert client.purge().jobs == 7


def test_a_client_is_found_by_the_environment(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURABLE_JOBS_API_URL", raising=False)
    with pytest.raises(BadInput, match="DURABLE_JOBS_API_URL"):
        JobsClient.from_environment()
    monkeypatch.setenv("DURABLE_JOBS_API_URL", api.url)
    monkeypatch.setenv("DURABLE_JOBS_TOKEN", token())
    with JobsClient.from_environment() as client:
        assert client.stats().pending == 0


def test_every_operation_belongs_to_both_clients_and_says_what_it_does() -> None:
    names = [name for name in vars(_Client) if not name.startswith("_") and name != "from_environment"]
    assert {"submit", "wait", "purge"} <= set(names)
    for name in names:
        for client in (JobsClient("http://host"), AsyncJobsClient("http://host")):
            method = getattr(client, name)
            assert method.__name__ in (name, f"{name}_jobs")
            assert method.__doc__


def test_importing_the_product_loads_no_client_and_a_client_loads_no_server() -> None:
    program = (
        "import sys, durable_jobs; before = set(sys.modules); durable_jobs.JobsClient;"
        "assert not {'httpx', 'durable_jobs.client'} & before;"
        "assert not {'fastapi', 'starlette', 'prefect', 'prometheus_client'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
