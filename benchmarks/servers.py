"""The servers of a run: one Postgres with default settings and fsync on, and on it the Prefect server that
`durable-jobs up` would start; each system has a database of its own.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from sqlalchemy.engine import make_url

from durable_jobs.deployments.environment import base_environment
from durable_jobs.deployments.prefect_server import answers, server_settings
from durable_jobs.embedded import PostgresCluster
from durable_jobs.embedded.ports import kept_port
from durable_jobs.schema import migrate
from durable_jobs.schema.roles import provision

START_S = 180
STOP_S = 20
SETTLE_S = 20
CALM_PERCENT = 25


class Servers:
    """Postgres, and Prefect."""

    def __init__(self, folder: Path) -> None:
        """Nothing runs yet."""
        self._folder = folder
        self._cluster = PostgresCluster(folder / "postgres")
        self._prefect: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}

    def start(self) -> None:
        """Start Postgres, and choose where Prefect will answer."""
        self._cluster.start()
        port = self._port = kept_port(self._folder / "prefect-port")
        self.environment = {
            name: value
            for name, value in base_environment(self._folder, port).items()
            if name.startswith("PREFECT_")
        } | {"PREFECT_LOGGING_LEVEL": "CRITICAL"}

    def start_prefect(self) -> None:
        """Start Prefect and return when it answers; not before it is needed, since it is never idle."""
        url = make_url(self.owner_url("prefect")).set(drivername="postgresql+asyncpg")
        settings = server_settings(self._folder, self._port, url.render_as_string(hide_password=False))
        with (self._folder / "prefect.log").open("ab") as log:
            self._prefect = subprocess.Popen(
                [sys.executable, "-m", "prefect", "server", "start"],
                env={**base_environment(self._folder, self._port), **settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        give_up = time.monotonic() + START_S
        while not answers(self.environment["PREFECT_API_URL"]):
            if time.monotonic() > give_up:
                raise TimeoutError(f"no Prefect server: {(self._folder / 'prefect.log').read_text()[-2000:]}")
            time.sleep(0.2)
        self._let_it_settle()

    def _let_it_settle(self) -> None:
        """Wait until what the Prefect server does at its start is done: it takes a core for some seconds."""
        if self._prefect is not None:
            server = psutil.Process(self._prefect.pid)
            give_up = time.monotonic() + SETTLE_S
            while server.cpu_percent(interval=1) > CALM_PERCENT and time.monotonic() < give_up:
                continue

    def stop(self) -> None:
        """Stop both; their data go with the folder."""
        if self._prefect is not None:
            os.killpg(self._prefect.pid, signal.SIGTERM)
            try:
                self._prefect.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._prefect.pid, signal.SIGKILL)
                self._prefect.wait()
        self._cluster.remove()

    def owner_url(self, name: str) -> str:
        """Make a database and return its owner's URL."""
        self._cluster.create_database(name)
        return self._cluster.admin_url(name)

    def cpu(self) -> float:
        """Return the processor time (s) of all sessions of Postgres that live, by their processes."""
        folder = next((self._folder / "postgres").glob("data/postmaster.pid"))
        postmaster = psutil.Process(int(folder.read_text().splitlines()[0]))
        # The time of sessions that have ended is in the postmaster's.
        own = postmaster.cpu_times()
        total = own.user + own.system + own.children_user + own.children_system
        for child in postmaster.children():
            with suppress(psutil.NoSuchProcess):
                times = child.cpu_times()
                total += times.user + times.system
        return total

    def ours(self, name: str) -> tuple[str, dict[str, str]]:
        """Make a database with our schema; return the application's URL, and the environment of its process."""
        owner = self.owner_url(name)
        migrate(owner)
        application = provision(owner, secrets.token_urlsafe(16))
        return application, {
            **self.environment,
            "BENCH_ADMIN_URL": owner,
            "DURABLE_JOBS_DATABASE_URL": application,
            "DURABLE_JOBS_MODULES": "benchmarks.systems.ours",
            "DURABLE_JOBS_POOL_SIZE": "10",
        }


@contextmanager
def servers() -> Iterator[Servers]:
    """Start the servers in a temporary folder and remove them behind the block."""
    with tempfile.TemporaryDirectory(prefix="durable-jobs-bench-") as folder:
        # The server runs as an account of its own, which must pass through.
        Path(folder).chmod(0o711)
        running = Servers(Path(folder))
        try:
            running.start()
            yield running
        finally:
            running.stop()
