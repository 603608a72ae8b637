"""An installation as people have it: a Postgres, a Prefect server on it with a login, work-pool workers.

Everything lives in one folder and listens on 127.0.0.1; each part can be killed and started again. All
processes carry the folder's mark, so that nothing outlives the tests.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg

from durable_jobs.deployments import environment
from durable_jobs.deployments.children import Child
from durable_jobs.deployments.databases import prepare_prefect
from durable_jobs.deployments.marked import marked_processes
from durable_jobs.deployments.prefect_server import prefect_server
from durable_jobs.embedded import PostgresCluster
from durable_jobs.embedded.leftovers import server_pid
from durable_jobs.embedded.ports import free_port
from tests.acceptance.stack_process import PROGRAM, wait_for
from tests.support.cluster import SETTINGS

LOGIN = "ada:not-a-real-password"
DATABASE = "jobs"


class Installation:
    """The parts, started one by one."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.home = folder
        self.port = free_port()
        self.api = environment.api_url(self.port)
        self.cluster = PostgresCluster(folder / "postgres", settings=SETTINGS | {"fsync": "on"})
        self._variables = variables
        self._prefect_url = ""
        self._server: Child | None = None
        self.workers: list[subprocess.Popen[bytes]] = []

    @property
    def admin_url(self) -> str:
        return self.cluster.admin_url(DATABASE)

    @property
    def variables(self) -> dict[str, str]:
        """What a person sets to run the commands."""
        login = {"PREFECT_API_AUTH_STRING": LOGIN, "DURABLE_JOBS_ADMIN_DATABASE_URL": self.admin_url}
        return environment.base_environment(self.home, self.port) | login | self._variables

    def start(self) -> None:
        """Start Postgres and the Prefect server."""
        self.start_postgres()
        self._prefect_url = prepare_prefect(self.admin_url, "not-a-real-password", server_is_ours=True)
        self.start_server()

    def start_postgres(self) -> None:
        self.cluster.start()
        self.cluster.create_database(DATABASE)

    def start_server(self) -> None:
        base = environment.base_environment(self.home, self.port)
        quick = {
            "PREFECT_SERVER_API_AUTH_STRING": LOGIN,
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
        }
        server = prefect_server(self.home, self.port, self._prefect_url, base | quick)
        server.start()
        self._server = server
        wait_for(self._answers, 240, f"the server: {server.last_words()}")

    def start_worker(self, name: str) -> subprocess.Popen[bytes]:
        """Start a worker of the pool; it knows the Prefect server and nothing else."""
        base = environment.base_environment(self.home, self.port)
        quick = {"PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_WORKER_PREFETCH_SECONDS": "1"}
        with (self.home / f"worker-{name}.log").open("ab") as log:
            worker = subprocess.Popen(
                [PROGRAM, "worker", "--limit", "12", "--name", name],
                env=base | quick | {"PREFECT_API_AUTH_STRING": LOGIN},
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def command(self, *arguments: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `durable-jobs` as a person does."""
        return self._run([PROGRAM, *arguments], code, variables)

    def prefect(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `prefect`."""
        return self._run([sys.executable, "-m", "prefect", *arguments], 0, variables)

    def _run(
        self, command: list[str], code: int, variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        given = {k: v for k, v in (self.variables | variables).items() if v}
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=given, cwd=self.home, timeout=150
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Ask Prefect's API."""
        answer = httpx.request(
            method,
            f"{self.api}{path}",
            json=body,
            auth=tuple(LOGIN.split(":")),
            timeout=90,  # type: ignore[arg-type]
        )
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def deployments(self) -> dict[str, dict[str, Any]]:
        """Return the deployments by name, as flow/name."""
        flows = {flow["id"]: flow["name"] for flow in self.ask("POST", "/flows/filter", {})}
        found = self.ask("POST", "/deployments/filter", {})
        return {f"{flows[one['flow_id']]}/{one['name']}": one for one in found}

    def runs(self, *states: str, deployment: str | None = None) -> list[dict[str, Any]]:
        """Return flow runs, newest first."""
        body: dict[str, Any] = {"sort": "START_TIME_DESC", "limit": 200}
        if states:
            body["flow_runs"] = {"state": {"type": {"any_": list(states)}}}
        if deployment is not None:
            body["deployments"] = {"id": {"any_": [self.deployments()[deployment]["id"]]}}
        return list(self.ask("POST", "/flow_runs/filter", body))

    def owner(self) -> psycopg.Connection:
        """Connect as the owner."""
        return psycopg.connect(self.admin_url, autocommit=True, connect_timeout=10)

    def rows(self, query: str, *parameters: Any) -> list[Any]:
        """Ask the database, as the owner."""
        with self.owner() as connection:
            return connection.execute(query, parameters).fetchall()

    def kill_server(self) -> None:
        """Kill -9 the Prefect server."""
        servers = [p for p in marked_processes(self.home) if {"prefect", "server"} <= set(p.cmdline())]
        servers += [child for server in servers for child in server.children(recursive=True)]
        self._kill(servers)
        if self._server is not None:
            self._server.forget()

    def kill_everything(self) -> None:
        """As a power cut does."""
        wait_for(self._kill_all, 60, "the end of every process")
        self._reap()
        self.cluster.stop()

    def _kill_all(self) -> bool:
        left = marked_processes(self.home)
        postmaster = server_pid((self.home / "postgres" / "data").resolve())
        if postmaster is not None:
            left += [*psutil.Process(postmaster).children(), psutil.Process(postmaster)]
        self._kill(left)
        return not left

    def _kill(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> None:
        """Stop everything."""
        wait_for(self._kill_marked, 60, "the end of every process")
        self._reap()
        self.cluster.remove()

    def _kill_marked(self) -> bool:
        left = marked_processes(self.home)
        self._kill(left)
        return not left

    def _reap(self) -> None:
        for process in self.workers:
            process.wait(10)
        self.workers.clear()
        if self._server is not None:
            self._server.forget()
            self._server = None

    def _answers(self) -> bool:
        try:
            return self.ask("GET", "/ready") is not None
        except httpx.HTTPError:
            return False
