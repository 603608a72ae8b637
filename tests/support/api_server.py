"""`durable-jobs api` as a process of its own, and callers with tokens for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import httpx

from durable_jobs.api.callers import EVERY_SCOPE, Scope
from durable_jobs.api.tokens import make_token
from durable_jobs.embedded.ports import free_port
from durable_jobs.settings import Settings

COMMAND = Path(sys.executable).with_name("durable-jobs")
SECRET = "a secret for tests that is long enough"
START_S = 90
PATIENT = {"DURABLE_JOBS_API_REQUEST_TIMEOUT": "60", "DURABLE_JOBS_DATABASE_TIMEOUT": "30"}
"""For tests of what an API answers, on a machine that has other things to do."""


def token(
    tenant: str = "acme",
    subject: str = "ada",
    scopes: Iterable[Scope] = EVERY_SCOPE,
    lifetime: timedelta = timedelta(hours=1),
    **settings: Any,
) -> str:
    """Make a token as the API of the tests accepts it."""
    given = Settings(jwt_secret=SECRET, **settings)
    return make_token(given, tenant=tenant, subject=subject, scopes=scopes, lifetime=lifetime)


def bearer(*args: Any, **kwargs: Any) -> dict[str, str]:
    """Return the header with a token; see `token`."""
    return {"Authorization": f"Bearer {token(*args, **kwargs)}"}


class ApiServer:
    """One process that serves the API."""

    def __init__(self, database_url: str, *options: str, modules: str = "", **variables: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.modules = modules
        self._log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log", delete=False)  # noqa: SIM115 -- closed by stop
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("DURABLE_JOBS_")}
        self.process = subprocess.Popen(
            [COMMAND, "api", "--port", str(self.port), *options],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=inherited
            | {"DURABLE_JOBS_DATABASE_URL": database_url, "DURABLE_JOBS_MODULES": modules}
            | variables,
        )

    @property
    def log(self) -> str:
        """What the process wrote."""
        return Path(self._log.name).read_text(errors="replace")

    def wait_until_live(self) -> None:
        """Return when it answers."""
        give_up = time.monotonic() + START_S
        while True:
            try:
                if httpx.get(f"{self.url}/health/live", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                pass
            if self.process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"the API does not answer: {self.log}")
            time.sleep(0.05)

    def wait_until_ready(self) -> Any:
        """Return what it says when it takes jobs."""
        give_up = time.monotonic() + START_S
        while not (answer := httpx.get(f"{self.url}/health/ready", timeout=60)).is_success:
            if time.monotonic() > give_up:
                raise RuntimeError(f"the API is not ready: {self.log}")
            time.sleep(0.05)
        return answer.json()

    def stop(self) -> None:
        """End the process and forget its log."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._log.close()
        Path(self._log.name).unlink()

    def __enter__(self) -> Self:
        try:
            self.wait_until_live()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self, *args: Any, **kwargs: Any) -> httpx.Client:
        """Return a client with a token; see `token`."""
        return httpx.Client(base_url=self.url, headers=bearer(*args, **kwargs), timeout=60)


def served(database_url: str, *options: str, modules: str = "", **variables: str) -> ApiServer:
    """Start an API with tokens and without a limit of rate, unless the variables say otherwise; use it by `with`."""
    given = {"DURABLE_JOBS_JWT_SECRET": SECRET, "DURABLE_JOBS_API_RATE_LIMIT": "0"} | variables
    return ApiServer(database_url, *options, modules=modules, **given)
