"""The wheel as others get it: built, installed in an empty environment elsewhere, and a deployment run from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_jobs.embedded.ports import free_port
from tests.acceptance import stack_process
from tests.acceptance.stack_process import Up

ROOT = Path(__file__).parents[2]
MAPPED = {"src/durable_jobs/": "durable_jobs/"} | {
    f"{layer}/": f"durable_jobs/{layer}/" for layer in ("flows", "tasks", "blocks", "deployments")
}


def uv(*arguments: str) -> None:
    program = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    subprocess.run([program, *arguments], check=True, cwd=ROOT)


def tracked() -> set[str]:
    done = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True, cwd=ROOT)
    return set(done.stdout.splitlines())


def packed_name(file: str) -> str | None:
    """Where a file of the checkout stands in the wheel, if it belongs there."""
    if file == "prefect.yaml":
        return "durable_jobs/prefect.yaml"
    return next(
        (inside + file.removeprefix(folder) for folder, inside in MAPPED.items() if file.startswith(folder)),
        None,
    )


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="durable-jobs-wheel-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def wheel(folder: Path) -> Path:
    """The wheel, made from the sdist as a release is."""
    uv("build", "--quiet", "--out-dir", str(folder / "dist"))
    [built] = (folder / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_what_is_tracked_and_nothing_else(wheel: Path) -> None:
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {name for file in tracked() if (name := packed_name(file)) is not None}
    assert packed == expected


@pytest.fixture(scope="module")
def installed(wheel: Path, folder: Path) -> Path:
    """The `bin` of an empty environment outside of the checkout with the wheel in it."""
    environment = folder / "environment"
    requirements = folder / "requirements.txt"
    uv("venv", "--quiet", "--python", sys.executable, str(environment))
    uv("export", "--quiet", "--locked", "--no-dev", "--no-emit-project", "--output-file", str(requirements))
    python = str(environment / "bin" / "python")
    uv("pip", "install", "--quiet", "--python", python, "--requirements", str(requirements), str(wheel))
    return environment / "bin"


@pytest.mark.timeout(900)
def test_a_deployment_runs_from_the_wheel(
    installed: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_process, "PROGRAM", str(installed / "durable-jobs"))
    document = folder / "document.txt"
    document.write_text("kept")
    module = folder / "my_jobs.py"
    module.write_text((ROOT / "examples" / "word_count.py").read_text("utf-8"))
    up = Up(folder / "home", free_port(), DURABLE_JOBS_MODULES="my_jobs.py")
    try:
        up.wait_until_ready()
        command = f'durable-jobs submit WORD_COUNT \'{{"path": "{document}"}}\' --wait --json'
        assert '"state": "SUCCEEDED"' in up.shell(command)
    finally:
        assert up.stop() == 0, os.linesep.join(up.lines[-20:])
