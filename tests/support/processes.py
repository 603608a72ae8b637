"""Real processes for races: each runs one coroutine of a module, and prints what it has to tell."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def start(
    module: str, *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start `python -m module arguments`; it waits for a line on its standard input before it begins."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | (environment or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def wait_for_start() -> None:
    """Tell that this process is ready, and wait until all are to begin."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


@contextmanager
def running(processes: Iterable[subprocess.Popen[str]]) -> Iterator[list[subprocess.Popen[str]]]:
    """Let all begin at once; none outlives the block."""
    started = list(processes)
    try:
        for process in started:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                raise RuntimeError(f"{process.args} did not start")
        for process in started:
            if process.stdin is not None:
                process.stdin.write("go\n")
                process.stdin.flush()
        yield list(started)
    finally:
        for process in started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


def kill(process: subprocess.Popen[str]) -> None:
    """Kill it as a power cut would."""
    process.send_signal(signal.SIGKILL)
    process.wait()


def told(process: subprocess.Popen[str]) -> list[object]:
    """Return what it printed until its end, one JSON document a line."""
    output, _ = process.communicate(timeout=240)
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with {process.returncode}")
    return [json.loads(line) for line in output.splitlines()]
