"""What holds for every command: help with an example, the exit code of a store that is away, a quick start."""

from __future__ import annotations

import subprocess
import sys
import time
from uuid import uuid4

import pytest
import typer

from durable_jobs.cli.main import app
from tests.support.command import COMMAND, Command

COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
ID = str(uuid4())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example(command: Command, name: str) -> None:
    result = command(name, "--help")
    assert result.code == 0
    assert f"Example: durable-jobs {name}" in result.out
    assert COMMANDS[name].help


def test_all_commands_are_there() -> None:
    assert {
        "submit", "get", "list", "cancel", "retry", "resubmit", "pause", "resume", "workers", "config", "check",
    } <= set(COMMANDS)  # fmt: skip


def test_the_help_names_the_commands_that_need_prefect_too(command: Command) -> None:
    result = command("--help")
    assert result.code == 0
    for name in ("submit", "up", "demo"):
        assert f" {name} " in result.out


def test_an_unknown_command_is_bad_input(command: Command) -> None:
    result = command("submti")
    assert result.code == 2
    assert "submit" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["submit", "ECHO", '{"text": "a"}'],
        ["submit", "ECHO", '{"text": "a"}\n{"text": "b"}'],
        ["get", ID],
        ["list"],
        ["cancel", ID],
        ["retry", ID, str(uuid4())],
        ["resubmit", ID],
        ["pause", "ECHO"],
        ["resume", "ECHO"],
        ["workers"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_store_that_is_away_is_told_with_code_4_in_bounded_time(
    command: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_URL", "postgresql://boss:topsecret@127.0.0.1:1/shop")
    monkeypatch.setenv("DURABLE_JOBS_DATABASE_TIMEOUT", "0.5")
    begun = time.monotonic()
    result = command(*arguments)
    assert (result.code, result.out) == (4, "")
    assert time.monotonic() - begun < 30
    assert "the database did not answer within 0.5 s" in result.err
    assert "Connection refused" in result.err
    assert "topsecret" not in result.err


def test_submit_loads_nothing_that_it_does_not_need(database_url: str, command: Command) -> None:
    traced = subprocess.run(
        [sys.executable, "-X", "importtime", COMMAND, "submit", "ECHO", '{"text": "a"}'],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    loaded = {line.rpartition("|")[2].strip() for line in traced.stderr.splitlines()}
    assert "psycopg" in loaded
    for heavy in ("prefect", "alembic", "sqlalchemy", "httpx", "yaml", "fastapi", "rich.progress"):
        assert heavy not in loaded, heavy
