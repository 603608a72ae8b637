"""Finds and stops the processes of a stack by the mark in their environment.

The mark is inherited, so it also finds what a killed `up` left behind and what flow runs started themselves.
Flow runs go first and get the grace for their jobs; the services they need go after them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Collection, Iterable
from datetime import timedelta
from pathlib import Path

import psutil

from durable_jobs.deployments.environment import MARK

FLOW_RUN_PROGRAMS = ("prefect.engine", "prefect.flow_engine")
SERVING_PROGRAMS = ("durable_jobs.deployments.serving",)
SERVICE_PATIENCE = timedelta(seconds=20)


def marked_processes(home: Path) -> list[psutil.Process]:
    """Return the living processes that carry the mark of this home, apart from ourselves."""
    ourselves = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    return [p for p in psutil.process_iter() if p.pid not in ourselves and _is_marked(p, str(home))]


def running(processes: Iterable[psutil.Process], programs: Collection[str]) -> list[psutil.Process]:
    """Return those processes that run one of the Python modules."""
    return [process for process in processes if _runs(process, programs)]


def stop(processes: list[psutil.Process], patience: timedelta, is_urgent: Callable[[], bool]) -> None:
    """Ask processes to end, wait, and kill those left after `patience` or when it is urgent."""
    _signal(processes, signal.SIGTERM)
    alive = _wait(processes, patience, is_urgent)
    _signal(alive, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)


def stop_all(home: Path, grace: timedelta, is_urgent: Callable[[], bool]) -> None:
    """Stop every marked process: flow runs with the grace for their jobs, what starts them, then the rest."""
    stop(running(marked_processes(home), FLOW_RUN_PROGRAMS), grace, is_urgent)
    stop(running(marked_processes(home), SERVING_PROGRAMS), SERVICE_PATIENCE, is_urgent)
    stop(marked_processes(home), SERVICE_PATIENCE, is_urgent)


def _wait(
    processes: list[psutil.Process], patience: timedelta, is_urgent: Callable[[], bool]
) -> list[psutil.Process]:
    alive, left = processes, patience.total_seconds()
    while alive and left > 0 and not is_urgent():
        _, alive = psutil.wait_procs(alive, timeout=0.2)
        left -= 0.2
    return alive


def _signal(processes: Iterable[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.Error:
            # It has ended meanwhile.
            continue


def _is_marked(process: psutil.Process, home: str) -> bool:
    try:
        return process.environ().get(MARK) == home and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False


def _runs(process: psutil.Process, programs: Collection[str]) -> bool:
    try:
        return any(argument in programs for argument in process.cmdline())
    except (psutil.Error, OSError):
        return False
