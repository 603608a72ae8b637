"""`config` shows how failures of watched deployments are treated, when Prefect answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.command import Command

ANSWERS: dict[str, Any] = {
    "/api/deployments/filter": [
        {"name": "nightly", "flow_id": "1", "tags": ["durable", "durable:max-retries=5", "durable:x"]}
    ],
    "/api/flows/filter": [{"id": "1", "name": "etl"}],
    "/api/variables/name/durable_jobs_policies": {"value": {"etl/nightly": {"timeout": "PT1H"}}},
}


class Answering(BaseHTTPRequestHandler):
    """Answers as Prefect does."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def prefect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{server.server_address[1]}/api")
        yield
        server.shutdown()
        thread.join()


def test_policies_of_deployments_are_shown(command: Command, prefect: None) -> None:
    [policy] = command("config", "--json").json["deploymentPolicies"]
    assert policy == {
        "deployment": "etl/nightly",
        "maxRetries": 5,
        "retryBackoff": None,
        "retryable": True,
        "timeout": "PT1H",
        "faults": ["tag 'durable:x': 'x' is not one of max-retries, backoff, timeout, not-retryable"],
    }
    assert "etl/nightly" in command("config").out


def test_config_answers_also_when_prefect_does_not(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    assert command("config", "--json").json["deploymentPolicies"] is None
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    answer = command("config", "--json")
    assert (answer.code, answer.json["deploymentPolicies"]) == (0, None)
    assert "Prefect does not answer" in answer.err
