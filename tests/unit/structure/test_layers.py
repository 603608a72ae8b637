"""Dependencies point one way: flows -> tasks -> blocks -> src; nothing under src knows Prefect."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LAYERS = ("src", "blocks", "tasks", "flows", "deployments")
UPPER = {
    "src": {"blocks", "tasks", "flows", "deployments"},
    "blocks": {"tasks", "flows", "deployments"},
    "tasks": {"flows", "deployments"},
    "flows": {"flows", "deployments", "blocks"},
}
"""What a layer must not import. A flow works through tasks only, and knows no other flow."""


def files(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("layer", UPPER)
def test_no_layer_imports_one_above_it(layer: str) -> None:
    wrong = [
        (str(file.relative_to(ROOT)), name)
        for file in files(layer)
        for name in imports(file)
        for upper in UPPER[layer]
        if f"{name}.".startswith(f"durable_jobs.{upper}.")
    ]
    assert wrong == []


def test_nothing_under_src_imports_prefect() -> None:
    wrong = [
        (str(file.relative_to(ROOT)), name)
        for file in files("src")
        for name in imports(file)
        if name.partition(".")[0].startswith("prefect")
    ]
    assert wrong == []


def test_a_program_that_submits_never_loads_prefect() -> None:
    program = (
        "import sys, durable_jobs, durable_jobs.sync, durable_jobs.executor.shift, durable_jobs.cli.main;"
        "assert not [m for m in sys.modules if m.partition('.')[0] == 'prefect']"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("layer", ["flows", "tasks", "blocks"])
def test_no_file_is_named_like_a_module_that_people_import(layer: str) -> None:
    known = set(sys.stdlib_module_names) | set(packages_distributions())
    assert [file.name for file in files(layer) if file.stem in known] == []


def test_every_flow_is_last_in_its_file_and_short() -> None:
    for file in files("flows"):
        body = ast.parse(file.read_text("utf-8")).body
        if file.stem == "__init__":
            continue
        last = body[-1]
        assert isinstance(last, (ast.FunctionDef, ast.AsyncFunctionDef)), file
        assert last.name == file.stem
        assert (last.end_lineno or 0) - last.lineno < 50, file


def test_the_map_of_the_architecture_has_every_package() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    packages = {file.parent.name for file in (ROOT / "src" / "durable_jobs").glob("*/__init__.py")}
    assert [name for name in sorted(packages) if f"`{name}" not in table] == []
