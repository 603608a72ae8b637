"""Pages: every job once, whatever happens between two of them; a cursor is good for what it was given for."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import psycopg
import pytest
from uuid_utils.compat import uuid7

from tests.support.api_server import PATIENT, ApiServer, served
from tests.support.cluster import Urls
from tests.support.history import DAY, add_job


def add_of_one_instant(owner: psycopg.Connection, n: int, state: str = "FAILED") -> set[str]:
    """Add jobs that were made, and failed, at exactly the same moment."""
    ids = [uuid7() for _ in range(n)]
    for job_id in ids:
        add_job(owner, DAY, job_id=job_id, state=state, failed_reason="ValueError: no", job_type="ECHO")
    owner.execute("UPDATE job_history SET created_at = '2030-01-01Z', completed_at = '2030-01-02Z'")
    return {str(job_id) for job_id in ids}


def pages(client: httpx.Client, path: str, between: Any = None, **params: Any) -> list[list[str]]:
    """Read all pages, and do something between them."""
    found: list[list[str]] = []
    while True:
        answer = client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        found.append([job["jobId"] for job in answer.json()["jobs"]])
        if answer.json()["nextCursor"] is None:
            return found
        params["cursor"] = answer.json()["nextCursor"]
        if between is not None:
            between(found[-1][-1])


@pytest.mark.parametrize("path", ["/jobs", "/jobs/failed"])
def test_thirty_jobs_of_one_instant_come_once_each(
    client: httpx.Client, owner_connection: psycopg.Connection, path: str
) -> None:
    known = add_of_one_instant(owner_connection, 30)
    found = pages(client, path, limit=7)
    assert [len(page) for page in found] == [7, 7, 7, 7, 2]
    assert sorted(job for page in found for job in page) == sorted(known)


@pytest.mark.parametrize("path", ["/jobs", "/jobs/failed"])
def test_the_row_of_a_cursor_may_be_purged(
    client: httpx.Client, owner_connection: psycopg.Connection, path: str
) -> None:
    known = add_of_one_instant(owner_connection, 30)

    def purge(job_id: str) -> None:
        owner_connection.execute("DELETE FROM job_history WHERE job_id = %s", [job_id])

    found = pages(client, path, purge, limit=7)
    assert sorted(job for page in found for job in page) == sorted(known)


def test_jobs_that_come_meanwhile_do_not_shift_the_pages(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    known = add_of_one_instant(owner_connection, 20)

    def submit(_: str) -> None:
        client.post("/jobs", json={"type": "ECHO", "data": {"text": "new"}})

    owner_connection.execute("UPDATE job_history SET created_at = '2020-01-01Z'")
    assert sorted(job for page in pages(client, "/jobs", submit, limit=7) for job in page) == sorted(known)


def test_a_cursor_that_was_changed_is_refused(
    client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    add_of_one_instant(owner_connection, 3)
    cursor = client.get("/jobs", params={"limit": 1}).json()["nextCursor"]
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    assert client.get("/jobs", params={"cursor": cursor}).status_code == 200
    changed = [bytes([*raw[:at], raw[at] ^ 1, *raw[at + 1 :]]) for at in (0, 15, 16, 30, len(raw) - 1)]
    texts = [base64.urlsafe_b64encode(one).decode().rstrip("=") for one in [*changed, raw[16:], raw + b"x"]]
    for text in [*texts, "", "x", "é", "....", cursor[:-4], cursor * 2]:
        answer = client.get("/jobs", params={"cursor": text})
        assert answer.status_code == 400, text
        assert answer.json()["errors"][0]["field"] == "query.cursor"


def test_a_cursor_is_good_for_its_tenant_and_its_question(
    api: ApiServer, client: httpx.Client, owner_connection: psycopg.Connection
) -> None:
    add_of_one_instant(owner_connection, 3)
    cursor = client.get("/jobs", params={"limit": 1, "state": "FAILED"}).json()["nextCursor"]
    assert client.get("/jobs", params={"cursor": cursor, "state": "FAILED", "limit": 2}).status_code == 200
    for path, params in (("/jobs", {}), ("/jobs", {"state": "PENDING"}), ("/jobs/failed", {})):
        assert client.get(path, params={**params, "cursor": cursor}).status_code == 400
    with api.client(tenant="other") as stranger:
        assert stranger.get("/jobs", params={"cursor": cursor, "state": "FAILED"}).status_code == 400


def test_a_cursor_of_one_process_is_good_in_another(
    api: ApiServer, client: httpx.Client, owner_connection: psycopg.Connection, worker_urls: Urls
) -> None:
    add_of_one_instant(owner_connection, 3)
    cursor = client.get("/jobs", params={"limit": 1}).json()["nextCursor"]
    with served(worker_urls.application, **PATIENT) as other, other.client() as second:
        assert len(second.get("/jobs", params={"cursor": cursor}).json()["jobs"]) == 2


def test_filters(api: ApiServer, client: httpx.Client, owner_connection: psycopg.Connection) -> None:
    job_id = str(add_job(owner_connection, DAY, state="FAILED", failed_reason="no", job_type="ECHO"))
    other = client.post("/jobs", json={"type": "NARROW"}).json()["jobId"]
    for params, ids in (
        ({"state": ["FAILED", "PENDING"]}, {job_id, other}),
        ({"type": "ECHO"}, {job_id}),
        ({"queue": "narrow"}, {other}),
        ({"since": "1h"}, {other}),
        ({"since": "2000-01-01T00:00:00Z"}, {job_id, other}),
        ({"state": "SUCCEEDED"}, set()),
    ):
        answer = client.get("/jobs", params=params)
        assert answer.status_code == 200, answer.text
        jobs = answer.json()["jobs"]
        assert {job["jobId"] for job in jobs} == ids, params
        assert all("payload" not in job and "result" not in job for job in jobs)
    for wrong in ({"state": "DONE"}, {"limit": 0}, {"limit": 1001}, {"since": "yesterday"}, {"sort": "asc"}):
        answer = client.get("/jobs", params=wrong)
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json")
        assert answer.json()["errors"][0]["field"].startswith(f"query.{next(iter(wrong))}")
