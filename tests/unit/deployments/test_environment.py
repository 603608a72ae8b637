"""What the processes of a stack are told, and what they are not."""

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from durable_jobs.deployments import environment
from durable_jobs.settings import Settings

HOME = Path("/srv/home")


def test_another_prefect_of_the_caller_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://elsewhere.example/api")
    monkeypatch.setenv("PREFECT_API_KEY", "secret")
    monkeypatch.setenv("PREFECT_LOGGING_LEVEL", "DEBUG")
    variables = environment.base_environment(HOME, 4321)
    assert variables["PREFECT_API_URL"] == "http://127.0.0.1:4321/api"
    assert "PREFECT_API_KEY" not in variables
    assert variables["PREFECT_LOGGING_LEVEL"] == "DEBUG"
    assert variables["PREFECT_HOME"] == "/srv/home/prefect"


def test_relative_paths_hold_in_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "lib:/opt/lib")
    assert environment.base_environment(HOME, 1)["PYTHONPATH"] == f"{tmp_path}/lib:/opt/lib"
    settings = Settings.load(modules=("mine.py", "package.module"))
    variables = environment.application_environment(settings, HOME, "postgresql://app@host/db")
    assert variables["DURABLE_JOBS_MODULES"] == f"{tmp_path.resolve()}/mine.py,package.module"


def test_settings_reach_flow_runs_but_the_owners_url_does_not() -> None:
    owner, app = "postgresql://owner:hidden@host/db", "postgresql://app:pass@host/db"
    settings = Settings.load(
        admin_database_url=owner, database_url=owner, heartbeat_interval=timedelta(seconds=2)
    )
    variables = environment.application_environment(settings, HOME, app)
    assert variables["DURABLE_JOBS_DATABASE_URL"] == app
    assert variables["DURABLE_JOBS_HEARTBEAT_INTERVAL"] == "2.0"
    assert owner not in variables.values()


def test_the_lines_of_the_connection_file_survive_a_shell(tmp_path: Path) -> None:
    value = 'it\'s $HOME `id` \\ "quoted" and spaced'
    file = tmp_path / "connection.env"
    file.write_text(environment.write_lines({"DURABLE_JOBS_EXAMPLE": value}) + "\n")
    done = subprocess.run(
        ["sh", "-c", f'. "{file}"; printenv DURABLE_JOBS_EXAMPLE'], check=True, capture_output=True, text=True
    )
    assert done.stdout == f"{value}\n"
