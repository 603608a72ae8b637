"""The whole stack of one machine: Postgres, a Prefect server on it, a process that serves the deployments, the API.

Started in the order in which they need one another, stopped in the reverse order, and kept running between.
A home belongs to one stack at a time; what a killed one left behind is stopped before the next one starts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from durable_jobs.deployments import api_server, databases, environment, marked
from durable_jobs.deployments.backoff import Backoff
from durable_jobs.deployments.children import Child
from durable_jobs.deployments.manifest import read_manifest
from durable_jobs.deployments.prefect_server import answers, prefect_server, served_deployments
from durable_jobs.embedded import CannotStart, HomeLock, PortTaken, PostgresCluster, prepare_home
from durable_jobs.embedded.account import server_account
from durable_jobs.embedded.ports import is_free
from durable_jobs.embedded.secretfile import write_secret
from durable_jobs.errors import DurableJobsError
from durable_jobs.loading import load_registry
from durable_jobs.settings import Settings
from durable_jobs.urls import libpq_url

SERVER_PATIENCE = timedelta(minutes=3)
# Shifts, isolated jobs, Prefect and applications together need more than the 100 of the default.
POSTGRES_SETTINGS = {"max_connections": "200"}
CONNECTION_FILE = "connection.env"


class StackFailed(DurableJobsError):
    """A part of the stack ended or did not answer while the stack was starting."""


@dataclass(frozen=True)
class StackOptions:
    """What a stack is made of.

    Args:
        home: folder of everything that is kept.
        prefect_port: port of the Prefect server and its UI on 127.0.0.1.
        database_url: an owner's URL of an existing Postgres; None runs the embedded one.
        settings: the application's settings, handed on to every flow run.
        api_port: port of the HTTP API on 127.0.0.1; None runs none.
    """

    home: Path
    prefect_port: int
    database_url: str | None
    settings: Settings
    api_port: int | None = None


class Stack:
    """Postgres, Prefect, the served deployments and the API, as one thing to start, watch and stop."""

    def __init__(self, options: StackOptions, report: Callable[[str], None]) -> None:
        self.home = options.home.expanduser().absolute()
        self.database_url = ""
        self.is_urgent: Callable[[], bool] = lambda: False
        self._options = options
        self._report = report
        self._lock = HomeLock(self.home)
        self._cluster: PostgresCluster | None = None
        self._postgres_backoff = Backoff()
        self._children: list[Child] = []

    @property
    def ui_url(self) -> str:
        """Address of the Prefect UI."""
        return f"http://127.0.0.1:{self._options.prefect_port}"

    @property
    def http_api_url(self) -> str | None:
        """Address of the HTTP API, if there is one."""
        return None if self._options.api_port is None else api_server.api_url(self._options.api_port)

    @property
    def api_url(self) -> str:
        """Address of the Prefect API."""
        return environment.api_url(self._options.prefect_port)

    def start(self) -> None:
        """Start everything and return when jobs are executed.

        Raises:
            HomeInUse: another stack runs on this home.
            PortTaken, StackFailed and the errors of the embedded Postgres, of the modules and the settings.
        """
        prepare_home(self.home, server_account())
        self._lock.acquire()
        load_registry(self._options.settings.modules)
        self._stop_leftovers()
        self._check_ports()
        admin_url = self._start_postgres()
        server = self._start_prefect(admin_url)
        self._prepare_application(admin_url)
        api = self._start_api()
        self._start_serving(server, admin_url)
        self._await_api(api)
        self._write_connection_file()

    def watch(self) -> None:
        """Restart what has died; call it again and again."""
        if self._cluster is not None and not self._cluster.is_running and self._postgres_backoff.is_over:
            self._revive_postgres(self._cluster)
        for child in self._children:
            child.revive(self._report)

    def stop(self) -> None:
        """Stop everything: flow runs with the grace for their jobs, then Prefect, then Postgres."""
        if not self._lock.is_held:
            return
        if self._children:
            self._report("Stopping the flow runs and Prefect")
            self._stop_marked()
        for child in self._children:
            child.forget()
        if self._cluster is not None:
            self._report("Stopping Postgres")
            self._cluster.stop()
        self._lock.release()
        if self._children or self._cluster is not None:
            self._report("Stopped")

    def _revive_postgres(self, cluster: PostgresCluster) -> None:
        self._report("Postgres ended; starting it again")
        self._postgres_backoff.started()
        try:
            cluster.start()
        except CannotStart as error:
            self._report(str(error))

    def _stop_leftovers(self) -> None:
        left = marked.marked_processes(self.home)
        if left:
            self._report(f"Stopping {len(left)} processes that a killed run left behind")
            self._stop_marked()

    def _stop_marked(self) -> None:
        grace = self._options.settings.shutdown_grace + timedelta(seconds=5)
        marked.stop_all(self.home, grace, self.is_urgent)

    def _check_ports(self) -> None:
        if not is_free(self._options.prefect_port):
            raise PortTaken("the Prefect server", self._options.prefect_port, "--prefect-port")
        if self._options.api_port is not None and not is_free(self._options.api_port):
            raise PortTaken("the HTTP API", self._options.api_port, "--api-port")

    def _start_postgres(self) -> str:
        if self._options.database_url is not None:
            self._report(f"Postgres: {urlsplit(self._options.database_url).hostname}, as given")
            return libpq_url(self._options.database_url)
        self._report("Postgres: starting")
        self._cluster = PostgresCluster(
            self.home / "postgres", settings=POSTGRES_SETTINGS, report=self._report
        )
        self._cluster.start()
        self._cluster.create_database(databases.DATABASE)
        self._report(f"Postgres: answers on port {self._cluster.port}")
        return self._cluster.admin_url(databases.DATABASE)

    def _start_prefect(self, admin_url: str) -> Child:
        password = databases.kept_secret(self.home / "prefect-password")
        url = databases.prepare_prefect(admin_url, password, server_is_ours=self._cluster is not None)
        port = self._options.prefect_port
        server = prefect_server(self.home, port, url, environment.base_environment(self.home, port))
        self._report("Prefect: starting the server (the first start makes its tables and takes longer)")
        self._launch(server)
        return server

    def _prepare_application(self, admin_url: str) -> None:
        self._report(f"Database {databases.DATABASE}: migrating")
        password = databases.kept_secret(self.home / "application-password")
        self.database_url = databases.prepare_application(admin_url, password)

    def _start_api(self) -> Child | None:
        """Start the API early: it waits for nothing but the database."""
        if self._options.api_port is None:
            return None
        base = environment.base_environment(self.home, self._options.prefect_port)
        own = environment.application_environment(self._options.settings, self.home, self.database_url)
        server = api_server.api_server(self.home, self._options.api_port, self._tokens(), base | own)
        self._launch(server)
        return server

    def _await_api(self, server: Child | None) -> None:
        port = self._options.api_port
        if server is not None and port is not None:
            self._await(server, lambda: api_server.is_ready(port))
            self._report(f"API: answers at {api_server.api_url(port)}")

    def _tokens(self) -> Settings:
        return api_server.with_tokens(self._options.settings, self.home)

    def _start_serving(self, server: Child, admin_url: str) -> None:
        began = datetime.now(UTC)
        serving = self._serving_child()
        ours = ["--server-is-ours"] if self._cluster is not None else []
        self._launch(serving, "--after-outage", "--start-shift", *ours)
        api = self.api_url
        self._await(server, lambda: answers(api))
        expected = len(read_manifest())
        self._report(f"Prefect: answers, UI at {self.ui_url}")
        self._await(serving, lambda: served_deployments(api, since=began.isoformat()) >= expected)
        self._report("Deployments: served")
        self._await(serving, lambda: _a_shift_beats(admin_url, since=began))
        self._report("Shift: waiting for jobs")

    def _serving_child(self) -> Child:
        base = (
            environment.base_environment(self.home, self._options.prefect_port) | environment.SHIFT_DEFAULTS
        )
        own = environment.application_environment(self._options.settings, self.home, self.database_url)
        command = [sys.executable, "-m", "durable_jobs.deployments.serving"]
        return Child(
            "the deployments' process", command, base | own, self.home / "logs" / "serving.log", self.home
        )

    def _launch(self, child: Child, *arguments: str) -> None:
        self._children.append(child)
        child.start(*arguments)

    def _await(self, child: Child, is_ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SERVER_PATIENCE.total_seconds()
        while not is_ready():
            if not child.is_running:
                raise StackFailed(
                    f"{child.name} ended ({child.ending()}):\n{child.last_words()}\nIts log: {child.log}"
                )
            if time.monotonic() > deadline:
                raise StackFailed(f"{child.name} is not ready after {SERVER_PATIENCE}. Its log: {child.log}")
            time.sleep(0.2)

    def _write_connection_file(self) -> None:
        variables = environment.application_environment(self._options.settings, self.home, self.database_url)
        variables["PREFECT_API_URL"] = self.api_url
        if self._options.api_port is not None:
            variables |= api_server.api_variables(self._options.api_port, self._tokens())
        write_secret(self.home / CONNECTION_FILE, environment.write_lines(variables))


def _a_shift_beats(admin_url: str, since: datetime) -> bool:
    query = "SELECT 1 FROM job_executors WHERE last_seen_at > %s AND NOT draining LIMIT 1"
    with psycopg.connect(admin_url, connect_timeout=10) as connection:
        return connection.execute(query, [since]).fetchone() is not None
