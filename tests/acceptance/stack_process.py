"""`durable-jobs up` as a user runs it: a process, its output, and the shell that sources connection.env."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from durable_jobs.deployments.marked import marked_processes
from durable_jobs.embedded.leftovers import server_pid
from durable_jobs.embedded.ports import free_port

PROGRAM = str(Path(sys.prefix) / "bin" / "durable-jobs")
START_SECONDS, STOP_SECONDS = 300, 120


def bare_environment() -> dict[str, str]:
    """The environment without anything that points at another stack."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("DURABLE_JOBS_", "PREFECT_"))}


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class Up:
    """One run of `durable-jobs up`."""

    def __init__(self, home: Path, port: int, *options: str, **variables: str) -> None:
        self.home = home
        self.port = port
        self.api_port = free_port()
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [
                PROGRAM,
                "up",
                "--home",
                home,
                "--prefect-port",
                str(port),
                "--api-port",
                str(self.api_port),
                *options,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=bare_environment() | variables,
            cwd=home.parent,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.rstrip("\n") for line in self.process.stdout)

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_until_ready(self) -> None:
        wait_for(lambda: self.process.poll() is not None or "ready" in self.lines, START_SECONDS, "ready")
        assert "ready" in self.lines, self.output

    def wait_for_end(self, seconds: float = STOP_SECONDS) -> int:
        code = self.process.wait(seconds)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.wait_for_end()

    def kill_everything(self) -> None:
        """As a power cut does: every process of the stack at once."""
        self.process.kill()
        wait_for(self._kill_all, 60, "the end of every process")
        self.wait_for_end()

    def _kill_all(self) -> bool:
        left = self.processes()
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return not left

    def processes(self) -> list[psutil.Process]:
        """All living processes of the stack, apart from `up` itself."""
        found = marked_processes(self.home)
        server = server_pid((self.home / "postgres" / "data").resolve())
        if server is not None:
            found += [psutil.Process(server), *psutil.Process(server).children()]
        return found

    def shell(self, command: str) -> str:
        """Run a command in a new shell that has sourced connection.env."""
        script = f'. "{self.home}/connection.env"; PATH="{Path(PROGRAM).parent}:$PATH"; {command}'
        done = subprocess.run(
            ["sh", "-c", script],
            check=False,
            capture_output=True,
            text=True,
            env=bare_environment(),
            cwd="/",
            timeout=150,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
