"""What is measured: systems take turns within each test, so that the machine's noise hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, NamedTuple

from benchmarks.processes import SystemProcess
from benchmarks.results import OURS, Results
from benchmarks.servers import Servers

FLOOR = "bare SQL"
PREFECT = "Prefect .delay()"
CALLERS = 10
JOBS = "jobs/s"

CPU = "us"
HISTORY = 1_000_000
SNAPSHOT = 200_000
TENANTS = 1_000
WARMED_UP = 5

Say = Callable[[str], None]


class Sizes(NamedTuple):
    """How much of everything."""

    repeats: int
    one_by_one: int
    bulk: int
    slow: int
    """Jobs drained by systems that take them one by one."""
    shown: int
    delayed: int
    picked_up: int


WARM_UP = Sizes(repeats=1, one_by_one=200, bulk=2_000, slow=100, shown=0, delayed=0, picked_up=0)
QUICK = Sizes(repeats=2, one_by_one=1_000, bulk=5_000, slow=300, shown=150, delayed=20, picked_up=30)
FULL = Sizes(repeats=3, one_by_one=5_000, bulk=20_000, slow=2_000, shown=1_000, delayed=100, picked_up=300)
SLOW = ("procrastinate", "oban")


@dataclass
class Bench:
    """The systems of a run."""

    servers: Servers
    processes: Mapping[str, SystemProcess]
    submitters: Mapping[str, SystemProcess]
    """A second process of each system, to register from."""
    sizes: Sizes
    say: Say

    def timed(self, process: SystemProcess, what: str, *args: Any) -> tuple[Any, float]:
        """Return the answer, and the processor time (s) of the process and of Postgres together."""
        before = process.cpu() + self.servers.cpu()
        answer = process.ask(what, *args)
        return answer, process.cpu() + self.servers.cpu() - before


def registration(bench: Bench, results: Results) -> None:
    """One by one from 10 callers, no worker."""
    test = f"register one by one, {CALLERS} callers"
    for name, process in bench.processes.items():
        if name == PREFECT:
            continue
        bench.say(f"{name}: registering one by one")
        answer, cpu = bench.timed(process, "one_by_one", bench.sizes.one_by_one, CALLERS)
        results.add(name, test, answer["rate"], JOBS)
        results.add(name, f"{test}, p99", answer["p99"], "ms")
        results.add(name, f"{test}, processor time a job", cpu / bench.sizes.one_by_one * 1e6, CPU)
        process.ask("clear")


def bulk_and_drain(bench: Bench, results: Results) -> None:
    """Register many, then empty the queue; history stays, as each system keeps it."""
    sizes = bench.sizes
    test = f"drain {sizes.bulk:,} no-op jobs"
    for name, process in bench.processes.items():
        if name == PREFECT:
            continue
        jobs = sizes.slow if name in SLOW else sizes.bulk
        bench.say(f"{name}: registering and draining {jobs:,}")
        rate, cpu = bench.timed(process, "bulk", jobs)
        results.add(name, "register in bulk", rate, JOBS)
        results.add(name, "register in bulk, processor time a job", cpu / jobs * 1e6, CPU)
        # Without Prefect, so that its start is no part of the processor time; by_the_flow has the rate with it.
        rate, cpu = bench.timed(process, "drain_plainly" if name == OURS else "drain", jobs)
        results.add(name, test, rate, JOBS)
        results.add(name, f"{test}, processor time a job", cpu / jobs * 1e6, CPU)
        process.ask("clear")


def by_the_flow(bench: Bench, results: Results) -> None:
    """The same through the flow `execute_jobs`, as people run it; what is beside it has the same server beside."""
    jobs = bench.sizes.bulk
    test = f"drain {jobs:,} no-op jobs, a Prefect server beside"
    for name, system, drain in (
        (OURS, OURS, "drain"),
        (f"{OURS}, a shift without the flow", OURS, "drain_plainly"),
        ("pgqueuer", "pgqueuer", "drain"),
    ):
        if system in bench.processes:
            bench.say(f"{name}: draining {jobs:,} beside a Prefect server")
            bench.processes[system].ask("bulk", jobs)
            results.add(name, test, bench.processes[system].ask(drain, jobs), JOBS)
            bench.processes[system].ask("clear")


def beside_history(bench: Bench, results: Results) -> None:
    """An empty history and a million finished rows, in turns on two databases of the same server."""
    empty, jobs = bench.processes[OURS], bench.sizes.bulk
    bench.say(f"making {HISTORY:,} finished rows")
    full = SystemProcess("benchmarks.systems.ours:Ours", *bench.servers.ours("history"))
    full.ask("fill_history", HISTORY)
    for _ in range(bench.sizes.repeats + 2):
        for process, what in ((empty, "an empty history"), (full, f"{HISTORY:,} finished rows")):
            bench.say(f"draining {jobs:,}, {what}")
            process.ask("bulk", jobs)
            results.add(OURS, f"drain {jobs:,}, {what}", process.ask("drain_plainly", jobs), JOBS)
            process.ask("clear")
    full.stop()


def many_tenants(bench: Bench, results: Results) -> None:
    """As many jobs of a thousand tenants, beside one tenant."""
    ours, jobs = bench.processes[OURS], bench.sizes.bulk
    for _ in range(bench.sizes.repeats):
        for tenants in (1, TENANTS):
            bench.say(f"draining {jobs:,} of {tenants:,} tenants")
            ours.ask("register_for_tenants", tenants, jobs // tenants)
            rate = ours.ask("drain_plainly", jobs)
            results.add(OURS, f"drain {jobs:,} jobs of {tenants:,} tenants", rate, JOBS)
            ours.ask("clear")


def under_a_snapshot(bench: Bench, results: Results) -> None:
    """A live queue, without and with another session's snapshot over all that was done before."""
    ours = bench.processes[OURS]
    for held in (False, True):
        name = f"work off the last 5,000 of {SNAPSHOT:,} jobs" + (" under a held snapshot" if held else "")
        bench.say(name)
        results.add(OURS, name, ours.ask("drain_live", SNAPSHOT, 10_000, held), JOBS)
        ours.ask("clear")


def shown_drain(bench: Bench, results: Results) -> None:
    """Jobs that are Prefect task runs, beside Prefect's own way."""
    sizes = bench.sizes
    test = f"drain {sizes.shown:,} jobs shown as task runs"
    bench.say(test)
    ours = bench.processes[OURS]
    ours.ask("register_shown", sizes.shown)
    results.add(OURS, test, ours.ask("drain_shown", sizes.shown), JOBS)
    prefect = bench.processes[PREFECT]
    results.add(PREFECT, "register one by one, 10 callers", prefect.ask("bulk", sizes.delayed), JOBS)
    results.add(PREFECT, test, prefect.ask("drain", sizes.delayed), JOBS)


def pick_up(bench: Bench, results: Results, every: float = 0.1) -> None:
    """How long a job waits when the worker sleeps; worker and caller are two processes."""
    jobs = bench.sizes.picked_up
    for name, submitter in bench.submitters.items():
        bench.say(f"{name}: picking up")
        worker = bench.processes[name]
        worker.ask("start_serving")
        # The first ones open connections and prepare statements.
        submitter.ask("trickle", WARMED_UP, every)
        submitter.ask("trickle", jobs, every)
        if name == OURS:
            results.add(name, "memory of an idle shift", worker.ask("memory"), "MiB")
        latencies = worker.ask("stop_serving", jobs + WARMED_UP)[WARMED_UP:]
        cuts = quantiles(latencies, n=100, method="inclusive")
        for percentile in (50, 95, 99):
            results.add(name, f"pick-up, p{percentile}", cuts[percentile - 1], "ms")
