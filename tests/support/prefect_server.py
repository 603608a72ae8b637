"""A real Prefect server in a process of its own, with a login, that a test may kill and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from durable_jobs.embedded.ports import free_port

AUTH = "letters:not-a-real-password"
START_S = 180
_COMMAND = (sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1")


class PrefectServer:
    """One server on 127.0.0.1, with SQLite in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.api_url = f"http://127.0.0.1:{self.port}/api"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")} | {
            "PREFECT_HOME": str(self.folder),
            "PREFECT_SERVER_API_AUTH_STRING": AUTH,
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_UI_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
            "PREFECT_SERVER_SERVICES_TRIGGERS_PROACTIVE_GRANULARITY": "PT1S",
        }
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, "--port", str(self.port)],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up = time.monotonic() + START_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise AssertionError((self.folder / "server.log").read_text()[-3000:])
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill -9 it with all its processes."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Make it the server of this process for the block."""
        with temporary_settings({PREFECT_API_URL: self.api_url, PREFECT_API_AUTH_STRING: AUTH}):
            yield

    def events(self, *ids: str) -> list[dict[str, object]]:
        """Return what it has of these events (50 at most)."""
        wanted = {"filter": {"id": {"id": list(ids)}}, "limit": 50}
        answer = httpx.post(f"{self.api_url}/events/filter", json=wanted, auth=_auth(), timeout=10)
        answer.raise_for_status()
        found: list[dict[str, object]] = answer.json()["events"]
        return found

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.api_url}/ready", auth=_auth(), timeout=5).is_success
        except httpx.HTTPError:
            return False


def _auth() -> httpx.BasicAuth:
    return httpx.BasicAuth(*AUTH.split(":"))
