"""The OpenAPI document is true: its examples work, and whatever it allows is answered as it says, never with a 500."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.api_server import ApiServer, bearer

EXAMPLES = 8
FEW: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],
}
# What a 503 of health tells is an answer, and said in the document.
HEALTH = "/health/"
PROBLEM = "application/problem+json"
CHECKS: Any = [status_code_conformance, content_type_conformance, response_schema_conformance]

pytestmark = pytest.mark.timeout(300)


def operations(api: ApiServer) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json")
    return [result.ok() for result in schema.get_all_operations()]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_whatever_is_sent_is_answered_as_the_document_says(api: ApiServer, mode: GenerationMode) -> None:
    """What fits the document, and what does not."""
    asked = 0
    for operation in operations(api):
        if mode is GenerationMode.NEGATIVE and not takes_anything(operation):
            continue

        @settings(max_examples=EXAMPLES, **FEW)
        @given(case=operation.as_strategy(mode))
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            answer = case.call(base_url=api.url, headers=bearer(), timeout=60)
            if answer.status_code >= 500:
                assert case.path.startswith(HEALTH), answer.text
            case.validate_response(answer, checks=CHECKS)

        ask()
    assert asked > 50


def takes_anything(operation: Any) -> bool:
    return bool(operation.body) or bool(list(operation.iter_parameters()))


def test_the_examples_of_the_document_work(api: ApiServer, client: httpx.Client) -> None:
    posted = 0
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            for media in content.values():
                for example in media["examples"].values():
                    answer = client.request(method, path, json=example["value"])
                    assert answer.is_success, answer.text
                    assert client.get(answer.headers["location"]).status_code == 200
                    posted += 1
    assert posted >= 2


def test_the_page_of_the_document_is_there(api: ApiServer) -> None:
    page = httpx.get(f"{api.url}/docs", timeout=60)
    assert (page.status_code, "swagger" in page.text) == (200, True)
    assert "script-src" in page.headers["content-security-policy"]


HEADER_NAMES = (
    "Idempotency-Key", "X-Request-Id", "Content-Type", "Accept", "Cookie", "Origin", "Range", "Forwarded",
    "X-Forwarded-For", "Authorization", "If-None-Match", "Accept-Encoding", "X-Tenant-Id", "Expect",
)  # fmt: skip
BYTES = st.binary(max_size=200).map(lambda raw: bytes(c for c in raw if c >= 32 and c != 127).strip())
PLAIN = {b"content-type": b"application/json", b"authorization": bearer()["Authorization"].encode()}
DATA: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
BODIES = st.one_of(
    st.binary(max_size=200),
    DATA.map(lambda data: json.dumps(data).encode()),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["ECHO", "STRICT", "NARROW", "NONE", ""]) | DATA, "data": DATA},
        optional=dict.fromkeys(("idempotencyKey", "correlationId", "priority", "runAt", "type ", "x"), DATA),
    ).map(lambda body: json.dumps(body).encode()),
    st.sampled_from(
        [
            b"[" * 5_000,
            b'{"type": "ECHO", "data": ' + b'{"a":' * 3_000 + b"1" + b"}" * 3_000 + b"}",
            b'{"type": "ECHO", "data": {"text": "\\ud800"}}',
            b'{"type": "ECHO", "data": {"text": "\\u0000"}}',
            b'{"type": "ECHO", "data": {"text": "x", "times": 1e400}}',
            b'{"type": "ECHO", "data": {"text": "x", "times": ' + b"9" * 5_000 + b"}}",
            b'{"type": "ECHO", "type": "NARROW", "data": NaN}',
            b'{"type": "\\ud800", "idempotencyKey": "\\ud800"}',
            b'{"type": "NARROW", "runAt": "9999-12-31T23:59:59-23:59"}',
            b'{"type": "NARROW", "runAt": "0001-01-01T00:00:00+23:59"}',
            b'{"type": "NARROW", "runAt": "2030-01-01T00:00:00"}',
            b'{"type": "NARROW", "priority": true}',
            b'{"type": "NARROW", "correlationId": "\\u0000"}',
            '{"type": "ECHO", "data": {"text": "é"}}'.encode("utf-16"),
            b"\xff\xfe",
            b"",
        ]
    ),
)


@settings(max_examples=150, **FEW)
@given(
    headers=st.dictionaries(st.sampled_from(HEADER_NAMES), BYTES, max_size=4),
    body=BODIES,
)
def ask_anything(url: str, headers: dict[str, bytes], body: bytes) -> None:
    """Post a body with headers of any bytes."""
    sent = PLAIN | {name.lower().encode(): value for name, value in headers.items()}
    answer = httpx.post(f"{url}/jobs", content=body, headers=list(sent.items()), timeout=60)
    assert answer.status_code in (202, 400, 401, 413, 422, 429), answer.text
    if answer.status_code != 202 and answer.headers.get("x-request-id"):
        assert answer.headers["content-type"] == PROBLEM
        problem = answer.json()
        assert problem["status"] == answer.status_code
        assert problem["type"].startswith("urn:durable-jobs:problem:")
    assert PLAIN[b"authorization"].decode() not in answer.text


def test_headers_and_bodies_of_any_bytes_find_no_fault(api: ApiServer) -> None:
    ask_anything(api.url)
    assert "internal-error" not in api.log
    assert "a request failed" not in api.log


def test_every_answer_has_the_safe_headers(api: ApiServer, client: httpx.Client) -> None:
    answers = [
        client.get("/health/live"),
        client.get("/jobs"),
        client.get("/nowhere"),
        client.put("/jobs"),
        client.post("/jobs", content=b"{"),
        httpx.get(f"{api.url}/jobs", timeout=60),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 404, 405, 400, 401]
    for answer in answers:
        headers = answer.headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["x-request-id"]
        assert "server" not in headers
    for answer in answers[2:]:
        assert answer.headers["content-type"] == PROBLEM
        assert set(answer.json()) >= {"type", "title", "status", "detail", "instance"}
    assert answers[3].headers["allow"]


def test_a_request_keeps_the_id_that_it_came_with(client: httpx.Client) -> None:
    assert client.get("/nowhere", headers={"X-Request-Id": "abc-1"}).json()["instance"] == "urn:request:abc-1"
    for bad in ("a b", "x" * 200, "<script>"):
        assert client.get("/jobs", headers={"X-Request-Id": bad}).headers["x-request-id"] != bad


@pytest.mark.parametrize(
    ("body", "field", "kind"),
    [
        ({"data": {}}, "type", "missing"),
        ({"type": "NONE"}, "type", "string"),
        ({"type": 7}, "type", "integer"),
        ({"type": "ECHO", "data": {}}, "data.text", "missing"),
        ({"type": "ECHO", "data": {"text": "x", "times": "many"}}, "data.times", "string"),
        ({"type": "ECHO", "data": {"text": ["x"]}}, "data.text", "array"),
        ({"type": "ECHO", "data": 5}, "data", "integer"),
        ({"type": "NARROW", "priority": "high"}, "priority", "string"),
        ({"type": "NARROW", "priority": 101}, "priority", "integer"),
        ({"type": "NARROW", "runAt": "tomorrow"}, "runAt", "string"),
        ({"type": "NARROW", "runAt": 1_900_000_000}, "runAt", "integer"),
        ({"type": "NARROW", "when": "now"}, "when", "string"),
        ([], "body", "array"),
    ],
)
def test_what_cannot_be_right_is_told_where_and_what_it_is(
    client: httpx.Client, body: Any, field: str, kind: str
) -> None:
    """ERR-6: the path, the kind of what was given, and what is expected."""
    answer = client.post("/jobs", json=body)
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    [fault] = answer.json()["errors"]
    assert (fault["field"], fault["kind"]) == (field, kind)
    assert fault["message"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"type": "ECHO",}', "not JSON"),
        (b'{"type": "\xff"}', "not UTF-8"),
        (b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deep"),
        (b'{"priority": ' + b"9" * 5_000 + b"}", "too many digits"),
    ],
    ids=["syntax", "encoding", "depth", "digits"],
)
def test_a_body_that_no_parser_reads_is_told_why(client: httpx.Client, body: bytes, why: str) -> None:
    answer = client.post("/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    [fault] = answer.json()["errors"]
    assert fault["field"] == "body"
    assert why in fault["message"]
    assert answer.json()["detail"] == f"body: {fault['message']}"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/jobs?type=%00", 400),
        ("GET", "/jobs?queue=a%00b", 400),
        ("GET", "/jobs/failed?job_type=%00", 400),
        ("POST", "/queues/%00/pause", 404),
        ("POST", "/queues/%00/resume", 404),
        ("POST", "/types/%00/resume", 404),
    ],
)
def test_a_name_with_a_nul_is_no_fault_of_the_server(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    assert client.request(method, path).status_code == status


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/jobs", "GET, POST"),
        ("DELETE", "/jobs/0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55", "GET"),
        ("GET", "/queues/wide/pause", "POST"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_possible_is_told_with_those_that_are(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == 405
    assert sorted(answer.headers["allow"].split(", ")) == allowed.split(", ")
    assert answer.headers["allow"] in answer.json()["detail"]


def test_a_strict_model_reads_json_as_json(client: httpx.Client) -> None:
    data = {"id": "0198c5a1-6d1e-7c11-b2a4-3f2d1f0e9a55", "parts": [1, 2]}
    made = client.post("/jobs", json={"type": "STRICT", "data": data})
    assert made.status_code == 202, made.text
    assert client.get(made.headers["location"]).json()["payload"]["id"] == data["id"]


def test_a_body_that_is_not_said_to_be_json_is_not_read(client: httpx.Client) -> None:
    body = json.dumps({"type": "NARROW"}).encode()
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "multipart/form-data; boundary=x"}):
        assert client.post("/jobs", content=body, headers=headers).status_code == 400
