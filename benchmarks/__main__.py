"""`python -m benchmarks [--full]`: measure everything and print one table."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import measures
from benchmarks.measures import FLOOR, FULL, PREFECT, QUICK, Bench
from benchmarks.processes import SystemProcess
from benchmarks.results import OURS, Results
from benchmarks.servers import Servers, servers

WIDTH = 110
console = Console(width=None if sys.stdout.isatty() else WIDTH)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="larger sizes, and the shapes of long use")
    full = parser.parse_args().full
    began = time.monotonic()
    results = Results()

    def say(what: str) -> None:
        status.update(what)
        if not console.is_terminal:
            console.print(f"{time.monotonic() - began:6.1f} s  {what}")

    with servers() as running, console.status("starting") as status:
        _measure(running, full, results, say)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    title = f"{'Full' if full else 'Quick'} run of {minutes} min {seconds} s, {os.cpu_count()} cores, load"
    results.show(console, f"{title} {os.getloadavg()[0]:.1f}")
    if file := os.environ.get("BENCH_OUT"):
        results.write(Path(file))


def _measure(running: Servers, full: bool, results: Results, say: measures.Say) -> None:
    say("starting the systems")
    sizes = FULL if full else QUICK
    bench = Bench(running, _start(running), _start(running, but=(FLOOR, PREFECT)), sizes, say)
    try:
        warming = replace(bench, sizes=measures.WARM_UP)
        measures.registration(warming, Results())
        measures.bulk_and_drain(warming, Results())
        for _ in range(sizes.repeats):
            measures.registration(bench, results)
            measures.bulk_and_drain(bench, results)
        measures.pick_up(bench, results)
        if full:
            measures.shapes(bench, results)
        say("starting the Prefect server")
        running.start_prefect()
        measures.by_the_flow(bench, results)
        measures.shown_drain(bench, results)
    finally:
        for process in [*bench.processes.values(), *bench.submitters.values()]:
            process.stop()


_made: dict[str, tuple[str, dict[str, str]]] = {}


def _start(running: Servers, but: tuple[str, ...] = ()) -> dict[str, SystemProcess]:
    started = {}
    for name, path in _SYSTEMS.items():
        if name in but or (name in _PACKAGES and importlib.util.find_spec(_PACKAGES[name]) is None):
            continue
        url, environment = _made.get(name) or _made.setdefault(name, _database(running, name))
        process = SystemProcess(path, url, {**running.environment, **environment}, uvloop=name == "pgqueuer")
        started[name] = process
    return started


def _database(running: Servers, name: str) -> tuple[str, dict[str, str]]:
    if name in (OURS, FLOOR):
        owner, application = running.our_urls("ours" if name == OURS else "floor")
        return application, {
            "BENCH_ADMIN_URL": owner,
            "DURABLE_JOBS_DATABASE_URL": application,
            "DURABLE_JOBS_MODULES": "benchmarks.systems.ours",
            "DURABLE_JOBS_POOL_SIZE": "10",
        }
    if name == PREFECT:
        return "", {}
    return running.owner_url(name), {}


_SYSTEMS = {
    OURS: "benchmarks.systems.ours:Ours",
    "pgqueuer": "benchmarks.systems.with_pgqueuer:WithPgqueuer",
    "procrastinate": "benchmarks.systems.with_procrastinate:WithProcrastinate",
    PREFECT: "benchmarks.systems.with_prefect:WithPrefect",
    FLOOR: "benchmarks.systems.floor:Floor",
}
_PACKAGES = {"pgqueuer": "pgqueuer", "procrastinate": "procrastinate"}

if __name__ == "__main__":
    main()
