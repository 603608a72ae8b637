"""Limits that hold: a tenant's rate over several processes, the size of a body, the time of a request."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import httpx
import psycopg
import pytest

from durable_jobs.api.bodies import ENVELOPE
from durable_jobs.api.edge import Edge
from durable_jobs.api.rates import RateLimit
from durable_jobs.stores.postgres.api_state import PgApiState
from durable_jobs.stores.postgres.database import Database
from tests.integration.api.conftest import WORK
from tests.support.api_server import PATIENT, ApiServer, bearer, served
from tests.support.cluster import Urls
from tests.support.probes import PgProbe

ECHO = {"type": "ECHO", "data": {"text": "x"}}
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
WINDOW = timedelta(minutes=1)
MOST = 20_000


@pytest.fixture
async def state(database_url: str) -> AsyncIterator[PgApiState]:
    """What API processes share, on an empty database."""
    database = Database(database_url, timeout=timedelta(seconds=30), pool_size=5, prepared_statements=True)
    await database.open()
    yield PgApiState(database)
    await database.close()


async def test_no_minute_has_more_than_the_limit_and_the_wait_is_enough(state: PgApiState) -> None:
    """Any minute, wherever it begins; and who waits as long as was said is let in."""
    dice = random.Random(8)
    now, granted = NOON, []
    for _ in range(600):
        now += timedelta(seconds=dice.choice([0, 0, 0, 0.01, 0.3, 1, 5, 20, 70]))
        taken = await state.take_rate("acme", 10, now=now)
        if taken.granted:
            granted.append(now)
            continue
        # The header says whole seconds, rounded up.
        assert timedelta(0) < taken.wait <= WINDOW + timedelta(seconds=1)
        if dice.random() < 0.5:
            now += timedelta(seconds=-(-taken.wait.total_seconds() // 1))
            assert (await state.take_rate("acme", 10, now=now)).granted == 1
            granted.append(now)
    assert len(granted) > 100
    for first, last in zip(granted, granted[10:], strict=False):
        assert last - first >= WINDOW


async def test_a_limit_that_was_lowered_says_how_long_to_wait(state: PgApiState) -> None:
    for second in range(20):
        assert (await state.take_rate("acme", 100, now=NOON + timedelta(seconds=second))).granted == 1
    now = NOON + timedelta(seconds=30)
    taken = await state.take_rate("acme", 5, now=now)
    assert taken.granted == 0
    assert (await state.take_rate("acme", 5, now=now + taken.wait - timedelta(seconds=1.5))).granted == 0
    assert (await state.take_rate("acme", 5, now=now + taken.wait)).granted == 1


async def test_a_clock_that_goes_back_frees_nothing(state: PgApiState) -> None:
    assert (await state.take_rate("acme", 5, 5, now=NOON)).granted == 5
    assert (await state.take_rate("acme", 5, now=NOON - timedelta(hours=1))).granted == 0
    assert (await state.take_rate("acme", 5, now=NOON + timedelta(seconds=61))).granted == 1


async def test_a_flood_is_counted_exactly_and_tenants_apart(state: PgApiState) -> None:
    limits = [RateLimit(state, 30), RateLimit(state, 30)]
    calls = [limits[n % 2].take(tenant) for n in range(100) for tenant in ("acme", "other")]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for tenant in (0, 1):
        mine = answers[tenant::2]
        assert sum(answer is None for answer in mine) == 30
    for limit in limits:
        await limit.close()


async def post_some(url: str, n: int) -> list[httpx.Response]:
    async with httpx.AsyncClient(base_url=url, headers=bearer(), timeout=120) as client:
        return await asyncio.gather(*(client.post("/jobs", json=ECHO) for _ in range(n)))


async def test_processes_share_the_limit_of_a_tenant(
    api: ApiServer, worker_urls: Urls, rows: PgProbe
) -> None:
    """A refused submission leaves no row, reading is not limited."""
    limited = {"DURABLE_JOBS_API_RATE_LIMIT": "20"} | PATIENT
    # Both start at once.
    both = [served(worker_urls.application, modules=WORK, **limited) for _ in range(2)]
    with both[0] as one, both[1] as other:
        began = time.monotonic()
        posted = await asyncio.gather(post_some(one.url, 20), post_some(other.url, 20))
        took = time.monotonic() - began
        answers = [answer for some in posted for answer in some]
        accepted = [answer for answer in answers if answer.status_code == 202]
        refused = [answer for answer in answers if answer.status_code == 429]
        with other.client() as client:
            assert client.get("/jobs").status_code == 200
        with other.client(tenant="other") as stranger:
            assert stranger.post("/jobs", json=ECHO).status_code == 202
    # More only if the machine took nearly a minute for it.
    assert len(accepted) == 20 or took > 55, [answer.text for answer in answers]
    assert len(accepted) + len(refused) == 40
    assert len(rows.jobs()) == len(accepted) + 1
    for answer in refused:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "urn:durable-jobs:problem:rate-limited"
        assert 1 <= int(answer.headers["retry-after"]) <= 61


@pytest.fixture(scope="module")
def strict_api(worker_urls: Urls) -> Iterator[ApiServer]:
    """An API that takes small bodies and has little time."""
    settings = {"DURABLE_JOBS_MAX_PAYLOAD_BYTES": str(MOST), "DURABLE_JOBS_API_REQUEST_TIMEOUT": "5"}
    with served(worker_urls.application, modules=WORK, **settings) as server:
        yield server


def test_a_body_that_is_too_large_is_refused_unread(strict_api: ApiServer, api: ApiServer) -> None:
    """Only its length was sent, and the answer is there."""
    answer = raw(strict_api, f"Content-Length: {MOST + ENVELOPE + 1}\r\n", b"")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"application/problem+json" in answer
    assert b"connection: close" in answer.lower()


def test_a_body_in_chunks_is_counted(strict_api: ApiServer, api: ApiServer, rows: PgProbe) -> None:
    """It has no length, and no end: it is refused where the limit is."""
    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    answer = raw(strict_api, "Transfer-Encoding: chunked\r\n", chunk * (2 * (MOST + ENVELOPE) // 4096))
    assert answer.startswith(b"HTTP/1.1 413"), answer[:500]
    assert rows.jobs() == []


def test_a_payload_over_its_limit_is_told_with_the_number(strict_api: ApiServer, api: ApiServer) -> None:
    with strict_api.client() as client:
        answer = client.post("/jobs", json={"type": "ECHO", "data": {"text": "x" * MOST}})
        assert (answer.status_code, f"{MOST:,}" in answer.json()["detail"]) == (413, True)
        assert eventually_accepted(client, {"type": "ECHO", "data": {"text": "x" * (MOST - 100)}})


def test_a_body_that_does_not_come_takes_no_longer_than_a_request_may(
    strict_api: ApiServer, api: ApiServer
) -> None:
    began = time.monotonic()
    answer = raw(strict_api, "Content-Length: 100\r\n", b'{"type":')
    assert answer.startswith(b"HTTP/1.1 503")
    assert 2 < time.monotonic() - began < 60


def test_without_a_token_no_body_is_waited_for(strict_api: ApiServer, api: ApiServer) -> None:
    answer = raw(strict_api, "Content-Length: 100\r\n", b"", authorization="")
    assert answer.startswith(b"HTTP/1.1 401")


def test_a_caller_that_goes_away_leaves_nothing_behind(
    strict_api: ApiServer, api: ApiServer, rows: PgProbe
) -> None:
    with socket.create_connection(("127.0.0.1", strict_api.port), timeout=60) as connection:
        connection.sendall(head("Content-Length: 100\r\n") + b'{"type": "NARROW"')
    with strict_api.client() as client:
        assert eventually_accepted(client, ECHO)
    assert {row["job_type"] for row in rows.jobs()} == {"ECHO"}


def test_what_waits_too_long_is_answered_in_time_and_recovers(
    strict_api: ApiServer, api: ApiServer, owner_connection: psycopg.Connection, worker_urls: Urls
) -> None:
    """A lock that is held holds one request back for its bound of time, not for ever."""
    with psycopg.connect(worker_urls.admin) as holder, strict_api.client() as client:
        holder.execute("LOCK TABLE job_history IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        answer = client.post("/jobs", json=ECHO)
        assert time.monotonic() - began < 60
        assert (answer.status_code, int(answer.headers["retry-after"]) >= 1) == (503, True)
        assert client.get("/health/live").status_code == 200
        holder.rollback()
        assert eventually_accepted(client, ECHO)


def eventually_accepted(client: httpx.Client, body: object) -> bool:
    """Submit until there was time enough for it."""
    give_up = time.monotonic() + 60
    while client.post("/jobs", json=body).status_code != 202:
        assert time.monotonic() < give_up
        time.sleep(0.05)
    return True


def head(lines: str, authorization: str | None = None) -> bytes:
    token = bearer()["Authorization"] if authorization is None else authorization
    sent = f"Authorization: {token}\r\n" if token else ""
    return (
        f"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{sent}{lines}\r\n"
    ).encode()


def raw(server: ApiServer, lines: str, body: bytes, *, authorization: str | None = None) -> bytes:
    """Send a request as bytes, and return what comes back until its end or its problem document."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(head(lines, authorization))

        def send() -> None:
            try:
                connection.sendall(body)
            except OSError:
                # The answer came first and the connection was closed.
                return

        sender = threading.Thread(target=send)
        sender.start()
        answer = b""
        try:
            while not answer.endswith(b"}"):
                part = connection.recv(65536)
                if not part:
                    break
                answer += part
        except ConnectionResetError:
            pass
        connection.shutdown(socket.SHUT_RDWR)
        sender.join()
    return answer


async def test_a_timeout_of_something_inside_is_a_fault_and_not_the_clock() -> None:
    async def broken(*_: object) -> None:
        raise TimeoutError("a disk that does not answer")

    edge = Edge(broken, timeout=timedelta(minutes=5), longer={}, most_in_flight=1)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(edge), base_url="http://api") as caller:
        answer = await caller.get("/jobs")
    assert (answer.status_code, answer.json()["type"]) == (500, "urn:durable-jobs:problem:internal-error")
