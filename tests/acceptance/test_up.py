"""`durable-jobs up` through three lives of one home: an ordinary one, one after an outage, one after a power cut.

The tests of this file build on one another: each start takes about fifteen seconds.
"""

import json
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.deployments.marked import SERVING_PROGRAMS, running
from durable_jobs.embedded import PostgresCluster
from durable_jobs.embedded.ports import free_port
from tests.acceptance.stack_process import PROGRAM, Up, bare_environment, wait_for

APPLICATION = Path(__file__).with_name("an_application.py")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.fixture(scope="module")
def document(folder: Path) -> Path:
    path = folder / "letter.txt"
    path.write_text("a letter worth keeping\n" * 100)
    return path


def archive(up: Up, document: Path) -> str:
    """Archive a document from an application in a new shell and return the job's state."""
    (job,) = json.loads(up.shell(f'python "{APPLICATION}" archive "{document}" "{document.parent}/archive"'))
    return str(job["state"])


def jobs(up: Up) -> list[str]:
    """List all jobs, by type."""
    return [job["jobType"] for job in json.loads(up.shell(f'python "{APPLICATION}" list'))]


@pytest.fixture(scope="module")
def first(folder: Path) -> Iterator[Up]:
    up = Up(folder / "home", free_port(), "--notification-block", "custom-webhook/ops")
    up.wait_until_ready()
    yield up
    if up.process.poll() is None:
        up.stop()


def test_a_new_shell_can_use_what_is_ready(first: Up, document: Path) -> None:
    assert archive(first, document) == "SUCCEEDED"
    assert jobs(first) == ["DOCUMENT_ARCHIVE"]


def test_the_connection_file_is_private_and_has_no_owners_url(first: Up) -> None:
    file = first.home / "connection.env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    url = first.shell("printf %s $DURABLE_JOBS_DATABASE_URL")
    with psycopg.connect(url) as connection:
        query = "SELECT rolsuper, rolbypassrls, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        assert connection.execute(query).fetchone() == (False, False, False)
    assert (first.home / "postgres" / "password").read_text().strip() not in file.read_text() + first.output


def test_every_deployment_is_there_and_the_ui_answers(first: Up) -> None:
    api = first.shell("printf %s $PREFECT_API_URL")
    found = httpx.post(f"{api}/deployments/filter", json={}).json()
    assert len(found) == len(read_manifest()) > 0
    assert {deployment["status"] for deployment in found} == {"READY"}
    assert (
        httpx.get(f"http://127.0.0.1:{first.port}/ui-settings", follow_redirects=True).json()["api_url"]
        == api
    )
    assert "<html" in httpx.get(f"http://127.0.0.1:{first.port}/", follow_redirects=True).text.lower()


def test_the_server_has_the_recorders_settings(first: Up) -> None:
    settings = httpx.get(f"http://127.0.0.1:{first.port}/api/admin/settings").json()["server"]
    recorder = settings["services"]["task_run_recorder"]
    assert (recorder["batch_size"], recorder["read_batch_size"]) == (200, 200)
    assert settings["analytics_enabled"] is False
    assert set(settings["services"]["db_vacuum"]["enabled"]) == {"events", "flow_runs"}


def test_the_api_answers_with_the_token_of_the_connection_file(first: Up, document: Path) -> None:
    url, token = (first.shell(f"printf %s $DURABLE_JOBS_{name}") for name in ("API_URL", "TOKEN"))
    assert url == f"http://127.0.0.1:{first.api_port}"
    assert f"HTTP API     {url}" in first.output
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60) as api:
        data = {"source": str(document), "store": str(document.parent / "over-http")}
        job_id = api.post("/jobs", json={"type": "DOCUMENT_ARCHIVE", "data": data}).json()["jobId"]
        wait_for(lambda: api.get(f"/jobs/{job_id}").json()["state"] == "SUCCEEDED", 60, "the job's end")
        assert api.get("/health/workers").json()["healthy"] is True
        assert (
            json.loads(first.shell(f"durable-jobs get {job_id} --json")) == api.get(f"/jobs/{job_id}").json()
        )
    assert httpx.get(f"{url}/jobs").status_code == 401
    assert "JWT_SECRET" not in (first.home / "connection.env").read_text()
    scoped = first.shell("durable-jobs token --scope read")
    answer = httpx.get(f"{url}/jobs", headers={"Authorization": f"Bearer {scoped.strip()}"}, timeout=60)
    assert answer.json()["jobs"][0]["tenantId"] == "default"


def test_the_block_holds_the_applications_connection(first: Up) -> None:
    code = (
        "from durable_jobs.blocks.jobs_database import JobsDatabase; "
        "print(type(JobsDatabase.load('jobs-database')).__name__)"
    )
    assert first.shell(f'python -c "{code}"') == "JobsDatabase\n"


def test_a_notification_block_is_told_once_it_is_made(first: Up) -> None:
    def automations() -> dict[str, str]:
        api = f"http://127.0.0.1:{first.port}/api"
        found = httpx.post(f"{api}/automations/filter", json={}, timeout=30).raise_for_status().json()
        return {one["name"]: json.dumps(one["actions"]) for one in found}

    notifies = "durable-jobs notifies when something is critical"
    assert notifies not in automations()
    code = (
        "from prefect.blocks.notifications import CustomWebhookNotificationBlock as Hook; "
        "print(Hook(name='ops', url='http://127.0.0.1:9/', json_data={'body': '{{body}}'}).save('ops'))"
    )
    block = first.shell(f'python -c "{code}"').strip()
    wait_for(lambda: notifies in automations(), 120, "the automation")
    assert block in automations()[notifies]


def test_a_second_up_on_the_same_home_is_refused(first: Up) -> None:
    second = Up(first.home, free_port())
    assert second.wait_for_end() != 0
    said = " ".join(second.lines)
    assert f"the home folder {first.home} is in use by process {first.process.pid}" in said
    assert "Stopped" not in said


def test_a_taken_port_is_named(first: Up, folder: Path) -> None:
    other = Up(folder / "other", first.port)
    assert other.wait_for_end() != 0
    assert f"port {first.port} of 127.0.0.1 (the Prefect server) is taken" in " ".join(other.lines)
    assert other.processes() == []
    third = Up(folder / "other", free_port(), "--api-port", str(first.api_port))
    assert third.wait_for_end() != 0
    assert f"port {first.api_port} of 127.0.0.1 (the HTTP API) is taken" in " ".join(third.lines)


def test_a_part_that_is_killed_is_started_again(first: Up, document: Path) -> None:
    (serving,) = running(first.processes(), SERVING_PROGRAMS)
    serving.kill()
    wait_for(lambda: "the deployments' process ended (signal 9)" in first.output, 120, "a message")
    wait_for(lambda: bool(running(first.processes(), SERVING_PROGRAMS)), 120, "a new process")
    assert archive(first, document) == "SUCCEEDED"


def scheduled_runs(up: Up) -> int:
    wanted = {"flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
    return int(httpx.post(f"http://127.0.0.1:{up.port}/api/flow_runs/count", json=wanted).text)


def api_of(up: Up) -> str:
    return f"http://127.0.0.1:{up.port}/api"


def missed_runs(up: Up) -> int:
    a_minute_ago = (datetime.now(UTC) - timedelta(minutes=1)).isoformat()
    wanted = {
        "flow_runs": {
            "state": {"type": {"any_": ["SCHEDULED"]}},
            "expected_start_time": {"before_": a_minute_ago},
        }
    }
    return int(httpx.post(f"{api_of(up)}/flow_runs/count", json=wanted).text)


def plan_ahead(up: Up) -> None:
    """Have Prefect plan the next hour now; its own loop does it once a minute."""
    api = api_of(up)
    for deployment in httpx.post(f"{api}/deployments/filter", json={}).json():
        planned = httpx.post(f"{api}/deployments/{deployment['id']}/schedule", json={"min_runs": 30})
        planned.raise_for_status()


def test_ctrl_c_stops_everything(first: Up) -> None:
    # The next life wants to find missed runs.
    plan_ahead(first)
    assert scheduled_runs(first) > 20
    before = first.processes()
    assert len(before) > 3
    assert first.stop(signal.SIGINT) == 0
    assert first.processes() == []
    assert not [
        process for process in before if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    ]


@pytest.fixture(scope="module")
def second(first: Up, folder: Path) -> Iterator[Up]:
    """The second life, after hours in which no cron was served and a flow run seemed to go on."""
    with (
        PostgresCluster(first.home / "postgres") as cluster,
        psycopg.connect(cluster.admin_url("prefect")) as db,
    ):
        db.execute(
            "UPDATE flow_run SET expected_start_time = expected_start_time - interval '5 hours',"
            " next_scheduled_start_time = next_scheduled_start_time - interval '5 hours'"
            " WHERE state_type = 'SCHEDULED' AND auto_scheduled"
        )
        db.execute(
            "UPDATE flow_run SET state_type = 'RUNNING', state_name = 'Running' WHERE id ="
            " (SELECT id FROM flow_run WHERE state_type = 'COMPLETED' OR state_type = 'CRASHED' LIMIT 1)"
        )
    up = Up(first.home, first.port)
    up.wait_until_ready()
    yield up
    if up.process.poll() is None:
        up.stop()


def test_a_second_start_finds_all_data(second: Up) -> None:
    assert len(jobs(second)) == 3


def test_missed_crons_do_not_pile_up_and_dead_flow_runs_are_closed(second: Up) -> None:
    log = (second.home / "logs" / "serving.log").read_text()
    (line,) = [line for line in log.splitlines() if "After an outage" in line]
    dead = int(line.split("After an outage: ")[1].split()[0])
    assert dead >= 1
    # Of each cron at most the latest missed run is left, whoever dropped the others.
    assert missed_runs(second) <= len(httpx.post(f"{api_of(second)}/deployments/filter", json={}).json())


def test_a_power_cut_loses_nothing(second: Up, document: Path) -> None:
    second.kill_everything()
    assert second.processes() == []
    third = Up(second.home, second.port)
    third.wait_until_ready()
    try:
        assert len(jobs(third)) == 3
        assert archive(third, document) == "SUCCEEDED"
    finally:
        assert third.stop(signal.SIGTERM) == 0
    assert third.processes() == []


def test_a_module_that_does_not_import_is_named_before_anything_starts(folder: Path) -> None:
    module = folder / "broken.py"
    module.write_text("import no_such_module_anywhere\n")
    up = Up(folder / "fresh", free_port(), DURABLE_JOBS_MODULES=str(module))
    assert up.wait_for_end() == 2
    assert "broken.py" in up.output
    assert "no_such_module_anywhere" in up.output
    assert not (folder / "fresh" / "postgres").exists()


def test_help_names_the_options() -> None:
    done = subprocess.run(
        [PROGRAM, "up", "--help"], check=True, capture_output=True, text=True, env=bare_environment()
    )
    assert all(
        option in done.stdout
        for option in ("--home", "--prefect-port", "--api-port", "--database-url", "--notification-block")
    )
