"""The job types that the docs show work as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Command

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def command(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)
    # The whole path: modules are loaded once by their name.
    variables = {
        "DURABLE_JOBS_DATABASE_URL": database_url,
        "DURABLE_JOBS_MODULES": str(tmp_path / "mine.py"),
    }
    return Command(monkeypatch, capsys, variables)


def write_module(page: str, folder: Path) -> None:
    """Save the first Python block of a page."""
    found = re.search(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert found is not None
    (folder / "mine.py").write_text(found[1])


def ended(command: Command, job_type: str, request: dict[str, Any]) -> dict[str, Any]:
    job_id = command("submit", job_type, json.dumps(request)).out.strip()
    command.execute()
    return dict(command("get", job_id, "--json").json)


def test_the_tutorials_job_type_measures_a_folder_and_is_retried(command: Command, tmp_path: Path) -> None:
    write_module("tutorial/first-job.md", tmp_path)
    folder = tmp_path / "data"
    failed = ended(command, "MEASURE_FOLDER", {"folder": str(folder)})
    assert (failed["state"], failed["failedReason"]) == (
        "FAILED",
        f"FileNotFoundError: {folder} is not a folder",
    )

    folder.mkdir()
    (folder / "a").write_text("abc")
    retried = command("retry", failed["jobId"]).out.strip()
    command.execute()
    job = command("get", retried, "--json").json
    assert (job["state"], job["result"]["value"]) == ("SUCCEEDED", {"files": 1, "bytes": 3})


def test_the_how_tos_job_type_works_skips_and_gives_up(command: Command, tmp_path: Path) -> None:
    write_module("how-to/write-a-job-type.md", tmp_path)
    made = ended(command, "INVOICE", {"order": 12})
    assert (made["queue"], made["result"]) == (
        "invoices",
        {"status": "OK", "value": {"number": "R-12", "pages": 1}},
    )
    assert ended(command, "INVOICE", {"order": 12, "copies": 0})["result"]["status"] == "SKIPPED"
    given_up = ended(command, "INVOICE", {"order": 13})
    assert (given_up["state"], given_up["retryable"]) == ("FAILED", False)
