"""`python -m benchmarks [--full] [--only PART ...]`: measure, and print one table."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be repeated")
    asked = parser.parse_args()
    names = asked.only or [name for name, part in PARTS.items() if asked.full or not part.only_full]
    began = time.monotonic()
    results = Results()

    def say(what: str) -> None:
        status.update(what)
        if not console.is_terminal:
            console.print(f"{time.monotonic() - began:6.1f} s  {what}")

    with servers() as running, console.status("starting") as status:
        _measure(running, FULL if asked.full else QUICK, names, results, say)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    title = (
        f"{'Full' if asked.full else 'Quick'} run of {minutes} min {seconds} s, {os.cpu_count()} cores, load"
    )
    results.show(console, f"{title} {os.getloadavg()[0]:.1f}")
    if file := os.environ.get("BENCH_OUT"):
        results.write(Path(file))


def _measure(
    running: Servers, sizes: measures.Sizes, names: Sequence[str], results: Results, say: measures.Say
) -> None:
    say("starting the systems")
    for name, why in _ABSENT.items():
        results.absent(name, why)
    bench = Bench(running, _start(running), _start(running, but=(FLOOR, PREFECT)), sizes, say)
    parts = [part for name, part in PARTS.items() if name in names]
    try:
        warming = replace(bench, sizes=measures.WARM_UP)
        measures.registration(warming, Results())
        measures.bulk_and_drain(warming, Results())
        _in_turns(bench, [part for part in parts if not part.with_prefect], results)
        if beside := [part for part in parts if part.with_prefect]:
            say("starting the Prefect server")
            running.start_prefect()
            measures.by_the_flow(warming, Results())
            _in_turns(bench, beside, results)
    finally:
        for process in [*bench.processes.values(), *bench.submitters.values()]:
            process.stop()


def _in_turns(bench: Bench, parts: Sequence[Part], results: Results) -> None:
    """Repeat what is repeated in turns, so that a slow minute hits all of it."""
    for _ in range(bench.sizes.repeats):
        for part in parts:
            if part.repeated:
                part.measure(bench, results)
    for part in parts:
        if not part.repeated:
            part.measure(bench, results)


_made: dict[str, tuple[str, dict[str, str]]] = {}


def _start(running: Servers, but: tuple[str, ...] = ()) -> dict[str, SystemProcess]:
    started = {}
    for name, path in _SYSTEMS.items():
        if name in but or name in _ABSENT:
            continue
        url, environment = _made.get(name) or _made.setdefault(name, _database(running, name))
        process = SystemProcess(path, url, environment, uvloop=name == "pgqueuer")
        started[name] = process
    return started


def _database(running: Servers, name: str) -> tuple[str, dict[str, str]]:
    if name in (OURS, FLOOR):
        return running.ours("ours" if name == OURS else "floor")
    return "" if name == PREFECT else running.owner_url(name), running.environment


class Part(NamedTuple):
    """A part of the benchmark."""

    measure: Callable[[Bench, Results], None]
    repeated: bool = False
    only_full: bool = False
    with_prefect: bool = False


PARTS = {
    "register": Part(measures.registration, repeated=True),
    "drain": Part(measures.bulk_and_drain, repeated=True),
    "pick-up": Part(measures.pick_up),
    "history": Part(measures.beside_history, only_full=True),
    "tenants": Part(measures.many_tenants, only_full=True),
    "snapshot": Part(measures.under_a_snapshot, only_full=True),
    "flow": Part(measures.by_the_flow, repeated=True, with_prefect=True),
    "task-runs": Part(measures.shown_drain, with_prefect=True),
}
_SYSTEMS = {
    OURS: "benchmarks.systems.ours:Ours",
    "pgqueuer": "benchmarks.systems.with_pgqueuer:WithPgqueuer",
    "procrastinate": "benchmarks.systems.with_procrastinate:WithProcrastinate",
    "oban": "benchmarks.systems.with_oban:WithOban",
    PREFECT: "benchmarks.systems.with_prefect:WithPrefect",
    FLOOR: "benchmarks.systems.floor:Floor",
}
_ABSENT = {
    name: f"needs Python 3.12 or newer, this is {platform.python_version()}"
    if name == "oban" and sys.version_info < (3, 12)
    else "is not installed: `make bench-setup` does"
    for name in ("pgqueuer", "procrastinate", "oban")
    if importlib.util.find_spec(name) is None
}

if __name__ == "__main__":
    main()
