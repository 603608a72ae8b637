"""A submission that is repeated, at once or later, is one job; another one under the same key is refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from durable_jobs.stores.postgres.statements import REGISTER, register_params
from tests.support.api_server import PATIENT, ApiServer, bearer, served
from tests.support.cluster import Urls
from tests.support.eventually import eventually
from tests.support.jobs import new_job
from tests.support.probes import PgProbe

ECHO = {"type": "ECHO", "data": {"text": "x", "times": 2}}


def kind(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).removeprefix("urn:durable-jobs:problem:")


async def post_many(url: str, n: int, **changes: Any) -> list[httpx.Response]:
    """Post the same request n times at once, each over a connection of its own."""
    limits = httpx.Limits(max_connections=n, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, headers=bearer(), limits=limits, timeout=120) as client:
        return await asyncio.gather(*(client.post("/jobs", **changes) for _ in range(n)))


@pytest.mark.parametrize("where", ["header", "field"])
async def test_fifty_equal_requests_at_once_are_one_job(api: ApiServer, rows: PgProbe, where: str) -> None:
    given: dict[str, Any] = (
        {"json": ECHO, "headers": {"Idempotency-Key": "k-1"}}
        if where == "header"
        else {"json": ECHO | {"idempotencyKey": "k-1"}}
    )
    answers = await post_many(api.url, 50, **given)
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    [row] = rows.jobs()
    assert (row["idempotency_key"], rows.counted("wide")) == ("k-1", 0)


async def test_all_get_one_job_when_the_first_transaction_rolls_back(
    api: ApiServer, rows: PgProbe, worker_urls: Urls
) -> None:
    job = new_job({"text": "x", "times": 2}, job_type="ECHO", queue="wide", idempotency_key="k-2")
    async with await psycopg.AsyncConnection.connect(worker_urls.application) as first:
        await first.execute(REGISTER, register_params("acme", [job]))
        others = asyncio.create_task(post_many(api.url, 50, json=ECHO | {"idempotencyKey": "k-2"}))
        waiting = "SELECT count(*) AS n FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
        await eventually(lambda: rows.run(waiting)[0]["n"], timedelta(seconds=60))
        await first.rollback()
    answers = await others
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["jobId"] for answer in answers}) == 1
    [row] = rows.jobs()
    assert row["job_id"] != job.job_id


def test_a_key_is_for_one_request_of_one_tenant(api: ApiServer, client: httpx.Client, rows: PgProbe) -> None:
    key = {"Idempotency-Key": "k-3"}
    first = client.post("/jobs", json=ECHO, headers=key).json()["jobId"]
    reordered = client.post("/jobs", content=b'{"data": {"times": 2, "text": "x"}, "type": "ECHO"}', headers={
        **key, "Content-Type": "application/json"})  # fmt: skip
    assert (reordered.status_code, reordered.json()["jobId"]) == (202, first)
    assert reordered.headers["idempotent-replayed"] == "true"
    changed = client.post("/jobs", json=ECHO | {"data": {"text": "y"}}, headers=key)
    assert (changed.status_code, kind(changed)) == (422, "idempotency-key-reused")
    with api.client(tenant="other") as stranger:
        theirs = stranger.post("/jobs", json=ECHO, headers=key)
    assert (theirs.status_code, theirs.json()["jobId"] == first) == (202, False)
    assert len(rows.jobs()) == 2


def test_a_known_key_names_the_job_that_has_the_say_now(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    body = ECHO | {"idempotencyKey": "k-4"}
    first = client.post("/jobs", json=body).json()["jobId"]
    owner_connection.execute(
        "UPDATE job_history SET state = 'FAILED', failed_reason = 'no', completed_at = now(), pending_shard = NULL"
    )
    assert client.post("/jobs", json=body).json() == {"jobId": first, "status": "FAILED"}
    # The same key on another operation means nothing there.
    child = client.post(f"/jobs/{first}/retry", headers={"Idempotency-Key": "k-4"}).json()["jobId"]
    assert client.post("/jobs", json=body).json() == {"jobId": child, "status": "PENDING"}


def test_a_key_is_free_again_when_its_job_is_purged(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    body = ECHO | {"idempotencyKey": "k-5"}
    first = client.post("/jobs", json=body).json()["jobId"]
    owner_connection.execute("DELETE FROM job_history")
    assert client.post("/jobs", json=body).json()["jobId"] != first


@pytest.mark.parametrize(
    ("header", "field", "status"),
    [
        ("a", "a", 202),
        ("a", "b", 400),
        ("x" * 256, None, 400),
        ("x" * 255, None, 202),
        ("", None, 400),
        ("with\ttab", None, 400),
        (None, "x" * 300, 400),
        (None, "", 400),
        (None, "nul\x00", 400),
        (None, 7, 400),
    ],
)
def test_a_key_that_cannot_be_right_is_refused(
    client: httpx.Client, header: str | None, field: Any, status: int
) -> None:
    headers = {} if header is None else {"Idempotency-Key": header}
    body = ECHO if field is None else ECHO | {"idempotencyKey": field}
    answer = client.post("/jobs", json=body, headers=headers)
    assert answer.status_code == status, answer.text


def test_two_headers_that_differ_are_refused(api: ApiServer) -> None:
    headers = [*bearer().items(), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = httpx.post(f"{api.url}/jobs", json=ECHO, headers=headers, timeout=60)
    assert (answer.status_code, kind(answer)) == (400, "idempotency-keys-differ")


async def test_a_bound_is_never_exceeded_and_refusals_leave_no_row(api: ApiServer, rows: PgProbe) -> None:
    """Cap 100, 95 waiting, 50 at once."""
    with api.client() as client:
        for _ in range(95):
            assert client.post("/jobs", json={"type": "NARROW"}).status_code == 202
    answers = await post_many(api.url, 50, json={"type": "NARROW"})
    accepted = [answer for answer in answers if answer.status_code == 202]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(accepted) + len(refused) == 50
    assert len(accepted) <= 5
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert len(rows.jobs()) == rows.counted("narrow") == 95 + len(accepted)


async def test_the_bound_holds_over_two_processes(api: ApiServer, rows: PgProbe, worker_urls: Urls) -> None:
    with served(worker_urls.application, modules=api.modules, **PATIENT) as second:
        both = await asyncio.gather(
            post_many(api.url, 80, json={"type": "NARROW"}),
            post_many(second.url, 80, json={"type": "NARROW"}),
        )
    accepted = [answer for answer in both[0] + both[1] if answer.status_code == 202]
    assert {answer.status_code for answer in both[0] + both[1]} <= {202, 429}
    assert len(accepted) <= 100
    assert len(rows.jobs()) == rows.counted("narrow") == len(accepted)
