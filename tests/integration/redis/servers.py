"""Real redis-server processes on 127.0.0.1, each in a folder of its own."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import redis

from durable_jobs.embedded.ports import free_port
from tests.integration.redis.certificates import ServerFiles

BUSY = 3.0
"""Seconds that a busy machine may add to a bound: what is tested is that nobody waits for the server."""
_PATIENCE = 60


class RedisServer:
    """One redis-server; a context manager that leaves no process and no file behind."""

    def __init__(self, *options: str, tls: ServerFiles | None = None, plain_port: bool | None = None) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            pytest.skip("redis-server is not on PATH: `make test` installs it where it can")
        # A Unix socket's path must be short, so pytest's folders do not do.
        self.folder = Path(tempfile.mkdtemp(prefix="dj-redis-"))
        self.port = free_port()
        self.plain_port = free_port() if tls and plain_port else 0
        common = "--bind 127.0.0.1 --enable-debug-command local --enable-protected-configs local"
        self._command = [binary, *common.split(), "--save", "", "--repl-diskless-sync-delay", "0"]
        # So that a stopped server has room for every connection of a test.
        self._command += ["--tcp-backlog", "2048"]
        self._command += ["--dir", str(self.folder), "--unixsocket", str(self.socket_path)]
        self._command += [*self._ports(tls), *options]
        self._process: subprocess.Popen[bytes] | None = None

    def _ports(self, tls: ServerFiles | None) -> list[str]:
        if tls is None:
            return ["--port", str(self.port)]
        return ["--port", str(self.plain_port), "--tls-port", str(self.port), *tls.options()]

    @property
    def socket_path(self) -> Path:
        return self.folder / "s"

    def start(self, *, wait_for: str = "Ready to accept connections") -> Self:
        log = (self.folder / "log").open("wb")
        with log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE
        while wait_for not in self.log() or not self.socket_path.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"redis-server did not start: {self.log()}")
            time.sleep(0.01)
        return self

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def admin(self, *words: str, username: str | None = None, password: str | None = None) -> Any:
        """Run one command through the Unix socket, past every network rule."""
        client = redis.Redis(unix_socket_path=str(self.socket_path), username=username, password=password)
        with client:
            return client.execute_command(*words)

    def freeze(self) -> None:
        self._running().send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def stop(self) -> None:
        process = self._running()
        process.kill()
        process.wait(_PATIENCE)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
