"""What is measured: systems take turns within each test, so that the machine's noise hits all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import quantiles
from typing import NamedTuple

from benchmarks.processes import SystemProcess
from benchmarks.results import OURS, Results

FLOOR = "bare SQL"
PREFECT = "Prefect .delay()"
CALLERS = 10
JOBS = "jobs/s"

Say = Callable[[str], None]
Processes = Mapping[str, SystemProcess]


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


QUICK = Sizes(repeats=2, one_by_one=1_000, bulk=5_000, slow=1_000, shown=150, delayed=20, picked_up=40)
FULL = Sizes(repeats=3, one_by_one=5_000, bulk=20_000, slow=2_000, shown=1_000, delayed=100, picked_up=300)
SLOW = ("procrastinate", "oban")


def registration(processes: Processes, sizes: Sizes, results: Results, say: Say) -> None:
    """One by one from 10 callers, no worker."""
    say("registering one by one")
    for name, process in processes.items():
        if name == PREFECT:
            continue
        answer = process.ask("one_by_one", sizes.one_by_one, CALLERS)
        results.add(name, "register one by one, 10 callers", answer["rate"], JOBS)
        results.add(name, "register one by one, 10 callers, p99", answer["p99"], "ms")
        process.ask("clear")


def bulk_and_drain(processes: Processes, sizes: Sizes, results: Results, say: Say) -> None:
    """Register many, then empty the queue; history stays, as each system keeps it."""
    for name, process in processes.items():
        if name == PREFECT:
            continue
        jobs = sizes.slow if name in SLOW else sizes.bulk
        say(f"{name}: registering and draining {jobs:,}")
        results.add(name, "register in bulk", process.ask("bulk", jobs), JOBS)
        results.add(name, f"drain {sizes.bulk:,} no-op jobs", process.ask("drain", jobs), JOBS)
        process.ask("clear")


def shown_drain(processes: Processes, sizes: Sizes, results: Results, say: Say) -> None:
    """Jobs that are Prefect task runs, beside Prefect's own way."""
    test = f"drain {sizes.shown:,} jobs shown as task runs"
    say(test)
    ours = processes[OURS]
    ours.ask("register_shown", sizes.shown)
    results.add(OURS, test, ours.ask("drain_shown", sizes.shown), JOBS)
    prefect = processes[PREFECT]
    results.add(PREFECT, "register one by one, 10 callers", prefect.ask("bulk", sizes.delayed), JOBS)
    results.add(PREFECT, test, prefect.ask("drain", sizes.delayed), JOBS)


def pick_up(
    workers: Processes, submitters: Processes, sizes: Sizes, results: Results, say: Say, every: float = 0.1
) -> None:
    """How long a job waits when the worker sleeps; worker and caller are two processes."""
    for name, worker in workers.items():
        if name not in submitters:
            continue
        say(f"{name}: picking up")
        worker.ask("start_serving")
        # The first ones open connections and prepare statements.
        submitters[name].ask("trickle", 10, every)
        submitters[name].ask("trickle", sizes.picked_up, every)
        latencies = worker.ask("stop_serving", sizes.picked_up + 10)[10:]
        cuts = quantiles(latencies, n=100, method="inclusive")
        for percentile in (50, 95, 99):
            results.add(name, f"pick-up, p{percentile}", cuts[percentile - 1], "ms")
