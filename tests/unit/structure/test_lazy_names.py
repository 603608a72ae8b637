"""`import durable_jobs` loads a name when it is asked for; checkers see the same names as the program."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import durable_jobs

ROOT = Path(__file__).parents[3]


def loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_alone_loads_nothing_of_weight() -> None:
    assert not loaded_by("import durable_jobs") & {"pydantic", "psycopg", "structlog", "durable_jobs.errors"}


def test_who_declares_job_types_loads_no_driver() -> None:
    loaded = loaded_by(
        "from durable_jobs import JobContext, JobState, NotRetryable, Queue, Skipped, job_type"
    )
    assert not loaded & {"psycopg", "sqlalchemy", "durable_jobs.settings", "durable_jobs.stores.postgres"}


def test_checkers_see_the_names_that_the_program_finds() -> None:
    tree = ast.parse((ROOT / "src/durable_jobs/__init__.py").read_text("utf-8"))
    [shown] = [n for n in tree.body if isinstance(n, ast.If) and isinstance(n.test, ast.Name)]
    imported = {
        alias.name: node.module
        for node in shown.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = {name: f"durable_jobs.{module}" for name, module in durable_jobs._MODULES.items()}
    assert imported == found
    assert sorted(durable_jobs.__all__) == sorted(found)


@pytest.mark.parametrize("name", durable_jobs.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(durable_jobs, name) is vars(durable_jobs)[name]
    assert name in dir(durable_jobs)


def test_a_misspelt_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="module 'durable_jobs' has no attribute 'regster_job'"):
        _ = durable_jobs.regster_job
