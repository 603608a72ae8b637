"""The command, with an empty database and job types of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import Urls
from tests.support.command import Command

WORK = Path(__file__).with_name("work.py")


def variables(database_url: str) -> dict[str, str]:
    return {"DURABLE_JOBS_DATABASE_URL": database_url, "DURABLE_JOBS_MODULES": str(WORK)}


@pytest.fixture
def command(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """The command on an empty database, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys, variables(database_url))


@pytest.fixture
def broken_command(
    new_database: Callable[[], Urls],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> tuple[Command, Urls]:
    """The command on a database of its own, which the test may take away."""
    urls = new_database()
    monkeypatch.chdir(tmp_path)
    settings = variables(urls.application) | {"DURABLE_JOBS_DATABASE_TIMEOUT": "2"}
    return Command(monkeypatch, capsys, settings), urls
