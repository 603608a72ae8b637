"""When the API starts, and when it refuses to: without tokens it is for this machine, in development, only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from durable_jobs.api.serving import require_safe
from durable_jobs.cli import tokens
from durable_jobs.embedded.secretfile import write_secret
from durable_jobs.errors import InvalidSettings
from durable_jobs.settings import Settings
from tests.integration.api.conftest import WORK
from tests.support.api_server import PATIENT, SECRET, ApiServer, served
from tests.support.cluster import Urls
from tests.support.command import Command

ECHO = {"type": "ECHO", "data": {"text": "x"}}


@pytest.fixture(scope="module")
def open_api(worker_urls: Urls) -> Iterator[ApiServer]:
    """An API without tokens."""
    with ApiServer(worker_urls.application, modules=WORK, **PATIENT) as server:
        yield server


def test_without_tokens_this_machine_is_the_default_tenant(open_api: ApiServer, api: ApiServer) -> None:
    with httpx.Client(base_url=open_api.url, timeout=60) as client:
        made = client.post("/jobs", json=ECHO)
        job = client.get(made.headers["Location"]).json()
    assert (job["tenantId"], job["submittedBy"]) == ("default", "local")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "jobs.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
    ],
)
def test_without_tokens_no_web_page_gets_in(
    open_api: ApiServer, api: ApiServer, headers: dict[str, str]
) -> None:
    """Neither by a name that was made to point here, nor from a page of another origin."""
    for method, path in (("POST", "/queues/wide/pause"), ("GET", "/jobs"), ("DELETE", "/jobs/purge")):
        answer = httpx.request(method, f"{open_api.url}{path}", headers=headers, timeout=60)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_what_is_not_safe_is_refused() -> None:
    require_safe(Settings(), "127.0.0.1")
    require_safe(Settings(), "::1")
    require_safe(Settings(jwt_secret=SECRET, environment="production"), "0.0.0.0")  # noqa: S104 -- what is tested
    for settings, host in (
        (Settings(), "0.0.0.0"),  # noqa: S104 -- what is tested
        (Settings(), "jobs.example"),
        (Settings(environment="production"), "127.0.0.1"),
        (Settings(environment="staging"), "localhost"),
    ):
        with pytest.raises(InvalidSettings, match="DURABLE_JOBS_JWT_SECRET"):
            require_safe(settings, host)


def test_the_command_says_why_it_does_not_start(command: Command) -> None:
    refused = command("api", "--host", "0.0.0.0")  # noqa: S104 -- what is tested
    assert (refused.code, "DURABLE_JOBS_JWT_SECRET" in refused.err) == (2, True)


def test_a_token_is_made_where_the_secret_is_known(
    command: Command, api: ApiServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_HOME", str(tmp_path))
    unknown = command("token")
    assert (unknown.code, "DURABLE_JOBS_JWT_SECRET is not set" in unknown.err) == (2, True)
    write_secret(tmp_path / tokens.JWT_SECRET_FILE, SECRET)
    made = command(
        "token", "--scope", "read", "--tenant", "acme", "--subject", "grace", "--lifetime", "5m"
    ).out.strip()
    headers = {"Authorization": f"Bearer {made}"}
    assert httpx.get(f"{api.url}/jobs", headers=headers, timeout=60).status_code == 200
    assert httpx.post(f"{api.url}/jobs", json=ECHO, headers=headers, timeout=60).status_code == 403
    wrong = command("token", "--scope", "everything")
    assert (wrong.code, "submit, read, operate" in wrong.err) == (2, True)


def test_the_api_never_loads_prefect(database_url: str) -> None:
    program = (
        "import sys; from durable_jobs.api.app import create_app; from durable_jobs.runtime import current_runtime;"
        "runtime = current_runtime(); app = create_app(runtime.settings, runtime.registry); app.openapi();"
        "import durable_jobs.api.serving;"
        "assert not [m for m in sys.modules if m.partition('.')[0] == 'prefect']"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={"DURABLE_JOBS_DATABASE_URL": database_url}
    )


def test_only_own_jobs_are_shown_where_it_is_set(api: ApiServer, worker_urls: Urls) -> None:
    own = {"DURABLE_JOBS_API_OWN_JOBS_ONLY": "true"} | PATIENT
    with served(worker_urls.application, modules=WORK, **own) as server:
        scopes = ["submit", "read"]
        with (
            server.client(subject="ada", scopes=scopes) as ada,
            server.client(subject="bob", scopes=scopes) as bob,
        ):
            job_id = ada.post("/jobs", json=ECHO).json()["jobId"]
            assert [job["jobId"] for job in ada.get("/jobs").json()["jobs"]] == [job_id]
            assert bob.get("/jobs").json()["jobs"] == []
            for path in ("", "/status", "/chain"):
                assert ada.get(f"/jobs/{job_id}{path}").status_code == 200
                assert bob.get(f"/jobs/{job_id}{path}").status_code == 404
        with server.client(subject="eve") as on_duty:
            assert on_duty.get(f"/jobs/{job_id}").status_code == 200
