"""An installation with a Prefect server, work-pool workers and serve(): relief, outages, a power cut.

The tests build on one another and share what is slow to start. Times are shortened by settings; crons are as they
are, apart from those that a test starts by hand.
"""

import asyncio
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import psutil
import psycopg
import pytest
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from pydantic import SecretStr

from durable_jobs.deployments.children import Child
from durable_jobs.deployments.marked import SERVING_PROGRAMS, marked_processes, running
from durable_jobs.loading import load_registry
from durable_jobs.registration import prepare, register_all
from durable_jobs.settings import Settings
from durable_jobs.stores.postgres import PgJobsStore
from durable_jobs.tasks.lost_runs import Clearing, clear_up_runs
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tenants import job_tenant_scope
from tests.acceptance.installation import DATABASE, LOGIN, Installation
from tests.acceptance.stack_process import wait_for

MODULE = Path(__file__).with_name("installed_jobs.py")
GENERATIONS = 5
# A flow run takes some four seconds of one core to start; other tests run beside this one.
PATIENCE = 180
SHIFT, RECONCILE, ISOLATED = "execute-jobs/shift", "jobs-reconcile/every-minute", "execute-job/isolated"
UNFINISHED = ("RUNNING", "PENDING", "CANCELLING")

pytestmark = pytest.mark.timeout(900)


class Site(Installation):
    """The installation, and what a test does to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder,
            DURABLE_JOBS_MODULES=str(MODULE),
            DURABLE_JOBS_HEARTBEAT_INTERVAL="1",
            DURABLE_JOBS_RUNNING_STALE_AFTER="6",
            DURABLE_JOBS_SHUTDOWN_GRACE="1",
        )
        self.traces = folder / "traces"
        self.traces.mkdir()

    @property
    def database_url(self) -> str:
        """The application's, with a password of the tests' own."""
        place = self.admin_url.rpartition("@")[2]
        return f"postgresql://durable_jobs_app_{DATABASE}:chosen@{place}"

    @property
    def settings(self) -> Settings:
        return Settings(
            _env_file=None,
            database_url=SecretStr(self.database_url),
            modules=(str(MODULE),),
            heartbeat_interval="1",  # type: ignore[arg-type]
            running_stale_after="6",  # type: ignore[arg-type]
        )

    def deploy(self) -> None:
        self.command("deploy", DURABLE_JOBS_DATABASE_URL=self.database_url)

    def submit(self, job_type: str, count: int = 1, seconds: float = 0.0) -> list[UUID]:
        """Register jobs as an application does."""
        registry, settings = load_registry((str(MODULE),)), self.settings
        data = {"folder": str(self.traces), "seconds": seconds}
        jobs = [prepare(registry, settings, job_type, data) for _ in range(count)]

        async def register() -> list[UUID]:
            async with PgJobsStore.from_settings(settings) as store:
                with job_tenant_scope("default"):
                    return [one.job.job_id for one in await register_all(store, jobs)]

        return asyncio.run(register())

    def states(self, ids: list[UUID]) -> Counter[str]:
        rows = self.rows("SELECT state FROM job_history WHERE job_id = ANY (%s)", ids)
        return Counter(state for (state,) in rows)

    def wait_until(self, ids: list[UUID], state: str) -> None:
        try:
            wait_for(lambda: self.states(ids) == {state: len(ids)}, PATIENCE, f"{len(ids)} jobs {state}")
        except AssertionError as late:
            jobs = self.rows("SELECT to_jsonb(j) FROM job_history j WHERE job_id = ANY (%s)", ids)
            executors = self.rows("SELECT to_jsonb(e), now() FROM job_executors e")
            raise AssertionError(f"{late}; jobs: {jobs}; executors: {executors}") from late

    def executions(self, ids: list[UUID]) -> Counter[int]:
        """Count jobs by how often they were executed."""
        files = [self.traces / str(job_id) for job_id in ids]
        return Counter(len(file.read_text().splitlines()) if file.exists() else 0 for file in files)

    def process_of(self, job_id: UUID) -> psutil.Process:
        return psutil.Process(int((self.traces / str(job_id)).read_text().split()[-1]))

    def started(self, job_id: UUID) -> bool:
        return (self.traces / str(job_id)).exists()

    def crew(self) -> list[UUID]:
        """Return the shifts that claim, newest first."""
        query = (
            "SELECT executor_id FROM job_executors WHERE in_crew AND NOT draining ORDER BY started_at DESC"
        )
        return [row[0] for row in self.rows(query)]

    def stop_workers(self) -> None:
        """Tell workers to stop, and wait until nothing works any more."""
        for worker in self.workers:
            worker.send_signal(signal.SIGTERM)
        wait_for(lambda: all(worker.poll() is not None for worker in self.workers), PATIENCE, "workers' end")
        wait_for(lambda: self.crew() == [], PATIENCE, "the shift's end")

    def serve(self) -> Child:
        """Start the program that serves all deployments."""
        own = {k: v for k, v in self.variables.items() if not k.startswith("DURABLE_JOBS_ADMIN")}
        own["DURABLE_JOBS_DATABASE_URL"] = self.database_url
        command = [sys.executable, "-m", "durable_jobs.deployments.serving", "--start-shift"]
        serving = Child("serving", command, own, self.home / "serving.log", self.home)
        serving.start()
        return serving

    def run(self, deployment: str) -> str:
        """Start a run by hand and return its id."""
        found = self.deployments()[deployment]
        return str(self.ask("POST", f"/deployments/{found['id']}/create_flow_run", {})["id"])

    def relieve(self) -> None:
        """Start a shift and wait until it is the only one that claims."""
        before = set(self.crew())
        self.run(SHIFT)
        wait_for(lambda: len(now := self.crew()) == 1 and not set(now) & before, PATIENCE, "a relief")

    def stop_crons(self) -> None:
        """Leave only the cron of jobs-reconcile: what the tests do not start is not to disturb them."""
        for name, one in self.deployments().items():
            if name != RECONCILE:
                self.ask("POST", f"/deployments/{one['id']}/pause_deployment")
                # Prefect's scheduler may have looked before, and plan afterwards.
                for run in self.runs("SCHEDULED", deployment=name):
                    self.ask("DELETE", f"/flow_runs/{run['id']}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Fail if there is a moment without a claiming shift."""
        gaps, stop = [], threading.Event()

        def watch() -> None:
            query = "SELECT count(*) FROM job_executors WHERE in_crew AND NOT draining"
            with psycopg.connect(self.admin_url, autocommit=True) as connection:
                while not stop.wait(0.02):
                    gaps.extend(["gap"] if connection.execute(query).fetchone() == (0,) else [])

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert gaps == []

    def clear_up(self) -> Clearing:
        """Do what a reconcile pass does about lost and missed runs."""

        async def clear() -> Clearing:
            async with PgJobsStore.from_settings(self.settings) as store:
                return await clear_up_runs(OpenRuntime(store, load_registry((str(MODULE),)), self.settings))

        with temporary_settings({PREFECT_API_URL: self.api, PREFECT_API_AUTH_STRING: LOGIN}):
            return asyncio.run(clear())


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Everything but a worker."""
    with tempfile.TemporaryDirectory(prefix="durable-jobs-site-") as name:
        Path(name).chmod(0o711)
        site = Site(Path(name))
        try:
            site.start()
            site.deploy()
            site.stop_crons()
            yield site
        finally:
            site.stop()


def test_a_wrong_login_is_told(site: Site) -> None:
    refused = site.command("deploy", code=1, PREFECT_API_AUTH_STRING="ada:wrong")
    assert "refuses the login (HTTP 401)" in refused.stderr
    assert "wrong" not in refused.stderr.replace("HTTP 401", "")


def test_one_job_is_run_by_hand(site: Site) -> None:
    site.start_worker("first")
    (job_id,) = site.submit("AGAIN")
    site.prefect("deployment", "run", ISOLATED, "-p", f"job_id={job_id}")
    site.wait_until([job_id], "SUCCEEDED")


def relieve_for_generations(site: Site) -> None:
    """Relieve the shift again and again while jobs come in."""
    ids: list[UUID] = []
    (long,) = site.submit("ONCE", seconds=20)
    wait_for(lambda: site.started(long), PATIENCE, "a long job")
    with site.watched():
        for _ in range(GENERATIONS):
            ids += site.submit("ONCE", 20, seconds=0.2)
            site.relieve()
        ids += site.submit("ONCE", 20)
        site.wait_until(ids, "SUCCEEDED")
    site.wait_until([long], "SUCCEEDED")
    assert site.executions([*ids, long]) == {1: len(ids) + 1}


def test_a_worker_relieves_shift_after_shift_and_somebody_is_always_on_duty(site: Site) -> None:
    site.relieve()
    relieve_for_generations(site)


def test_an_isolated_job_has_a_flow_run_of_its_own_and_a_loop_is_killed_there(site: Site) -> None:
    quick, endless = *site.submit("ALONE"), *site.submit("LOOP")
    site.wait_until([quick], "SUCCEEDED")
    wait_for(lambda: site.started(endless), PATIENCE, "the endless job")
    runs = {run["id"] for run in site.runs(deployment=ISOLATED)}
    rows = site.rows("SELECT flow_run_id FROM job_history WHERE job_id = ANY (%s)", [quick, endless])
    assert {str(run) for (run,) in rows} <= runs
    process = site.process_of(endless)
    site.command("cancel", str(endless), DURABLE_JOBS_DATABASE_URL=site.database_url)
    wait_for(lambda: not process.is_running(), PATIENCE, "the end of the endless job's process")
    site.wait_until([endless], "CANCELLED")
    assert len(site.crew()) == 1


def test_without_prefect_the_shift_on_duty_goes_on(site: Site) -> None:
    site.kill_server()
    crew = site.crew()
    ids = site.submit("AGAIN", 10, seconds=4)
    site.wait_until(ids, "SUCCEEDED")
    assert site.crew() == crew
    assert site.executions(ids) == {1: 10}
    site.start_server()


def test_a_worker_that_is_told_to_stop_gives_jobs_back_at_once(site: Site) -> None:
    if not site.workers:
        site.start_worker("first")
        site.relieve()
    (job_id,) = site.submit("AGAIN", seconds=600)
    wait_for(lambda: site.started(job_id), PATIENCE, "the job")
    site.stop_workers()
    assert site.states([job_id]) == {"PENDING": 1}
    assert site.rows("SELECT crash_count FROM job_history WHERE job_id = %s", job_id) == [(0,)]
    site.command("cancel", str(job_id), DURABLE_JOBS_DATABASE_URL=site.database_url)


def test_a_day_of_missed_crons_collapses_and_lost_runs_are_closed(site: Site) -> None:
    wait_for(lambda: len(site.runs("SCHEDULED", deployment=RECONCILE)) > 30, PATIENCE, "scheduled runs")
    as_running = {"state": {"type": "RUNNING"}, "force": True}
    site.ask("POST", f"/flow_runs/{site.run(SHIFT)}/set_state", as_running)
    lost = len(site.runs(*UNFINISHED))
    assert lost > 0
    with psycopg.connect(site.cluster.admin_url("prefect"), autocommit=True) as prefect:
        prefect.execute(
            "UPDATE flow_run SET expected_start_time = expected_start_time - interval '1 day',"
            " next_scheduled_start_time = next_scheduled_start_time - interval '1 day'"
            " WHERE state_type = 'SCHEDULED' AND auto_scheduled"
        )
        prefect.execute("UPDATE flow_run_state SET timestamp = timestamp - interval '1 day'")
    cleared = site.clear_up()
    assert cleared.lost == lost
    assert cleared.missed > 25
    assert len([run for run in site.runs("SCHEDULED") if run["expected_start_time"] < run["created"]]) <= 1
    assert site.runs(*UNFINISHED) == []


def test_after_a_power_cut_work_goes_on_by_itself(site: Site) -> None:
    site.stop_crons()
    site.start_worker("second")
    site.relieve()
    again, once = site.submit("AGAIN", 3, seconds=600), site.submit("ONCE", 2, seconds=600)
    wait_for(lambda: all(site.started(job) for job in [*again, *once]), PATIENCE, "jobs that run")
    before = {run["id"] for run in site.runs("RUNNING")}
    assert before
    site.kill_everything()
    site.start_postgres()
    site.start_server()
    dead = set(site.crew())
    site.start_worker("third")
    wait_for(lambda: bool(set(site.crew()) - dead), PATIENCE, "a shift")
    site.wait_until(again, "SUCCEEDED")
    site.wait_until(once, "FAILED")
    assert site.executions(again) == {2: 3}
    assert site.executions(once) == {1: 2}
    wait_for(lambda: not before & {run["id"] for run in site.runs(*UNFINISHED)}, PATIENCE, "closed runs")


@pytest.fixture(scope="module")
def serving(site: Site) -> Child:
    """The program that serves all deployments, in place of workers."""
    site.stop_workers()
    return site.serve()


def test_serve_relieves_shift_after_shift_too_and_gives_jobs_back(site: Site, serving: Child) -> None:
    wait_for(lambda: serving.is_running and len(site.crew()) == 1, PATIENCE, "a shift that is served")
    relieve_for_generations(site)
    (job_id,) = site.submit("AGAIN", seconds=600)
    wait_for(lambda: site.started(job_id), PATIENCE, "the job")
    (process,) = running(marked_processes(site.home), SERVING_PROGRAMS)
    process.terminate()
    wait_for(lambda: not serving.is_running, PATIENCE, "the end of serve()")
    site.wait_until([job_id], "PENDING")
    assert site.rows("SELECT crash_count FROM job_history WHERE job_id = %s", job_id) == [(0,)]
