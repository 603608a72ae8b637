"""The command `durable-jobs`: as a process of its own, or quicker within this one."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from durable_jobs.cli import main as cli
from durable_jobs.executor.shift import Shift
from durable_jobs.runtime import Runtime, current_runtime

COMMAND = Path(sys.executable).with_name("durable-jobs")


class Result(NamedTuple):
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        """Return the lines on stdout."""
        return self.out.splitlines()


class Command:
    """Runs the command within this process; every call is as if it were the first."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        variables: Mapping[str, str],
    ) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self._variables = variables
        for name in [name for name in os.environ if name.startswith(("DURABLE_JOBS_", "PREFECT_API"))]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Result:
        """Run it and return how it ended."""
        self._capsys.readouterr()
        self._monkeypatch.setattr("durable_jobs.runtime._installed", None)
        self._monkeypatch.setattr(sys, "argv", ["durable-jobs", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            cli.main()
        except SystemExit as end:
            return Result(int(end.code or 0), *self._capsys.readouterr())
        return Result(0, *self._capsys.readouterr())

    def execute(self) -> None:
        """Work a shift until nothing is due."""
        self._monkeypatch.setattr("durable_jobs.runtime._installed", None)
        asyncio.run(_execute(current_runtime()))

    def process(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        """Start it as a process of its own; kill it whatever happens."""
        return subprocess.Popen(
            [COMMAND, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
        )

    def alone(self, *arguments: str, stdin: str = "", **variables: str) -> Result:
        """Run it as a process of its own and return how it ended."""
        with self.process(*arguments, **variables) as process:
            out, err = process.communicate(stdin, timeout=120)
        return Result(process.returncode, out, err)


async def _execute(runtime: Runtime) -> None:
    store = await runtime.store()
    await Shift(store, runtime.registry, runtime.settings, until_empty=True).run()
    await runtime.close()
