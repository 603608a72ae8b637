"""Postgres processes that a killed run left behind in a data folder.

A process belongs to a data folder if it works in it: the server and all its backends do, nobody else does.
So a recycled process id in a stale `postmaster.pid` is never mistaken for a server.
"""

import signal
from datetime import timedelta
from pathlib import Path

import psutil

PID_FILE = "postmaster.pid"
FAST_SHUTDOWN, IMMEDIATE_SHUTDOWN = signal.SIGINT, signal.SIGQUIT


def server_pid(data: Path) -> int | None:
    """Return the process id in `postmaster.pid`, if that process lives and works in `data`."""
    try:
        pid = int((data / PID_FILE).read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    return pid if _works_in(pid, data.resolve()) else None


def clear_leftovers(data: Path, patience: timedelta) -> None:
    """Stop what still works in `data` and remove a lock file that nobody holds any more.

    A living server gets a fast shutdown and `patience` to finish it; orphaned backends end by themselves
    within seconds, and what has not ended after `patience` is killed.
    """
    server = server_pid(data)
    if server is not None:
        _send(server, FAST_SHUTDOWN)
    processes = _all_in(data.resolve())
    _, alive = psutil.wait_procs(processes, timeout=patience.total_seconds())
    for process in alive:
        _send(process.pid, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=5)
    # With nobody left in the folder the file is stale; its process id may already belong to somebody else,
    # which would make Postgres refuse to start.
    (data / PID_FILE).unlink(missing_ok=True)


def _all_in(data: Path) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _works_in(process.pid, data)]


def _works_in(pid: int, data: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return process.name() == "postgres" and process.cwd() == str(data)
    except (psutil.Error, OSError):
        return False


def _send(pid: int, signal_number: int) -> None:
    try:
        psutil.Process(pid).send_signal(signal_number)
    except psutil.NoSuchProcess:
        return
