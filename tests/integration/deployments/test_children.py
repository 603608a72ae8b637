"""Processes of a stack: restarted when they die, found by their mark, stopped in order."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from durable_jobs.deployments import marked
from durable_jobs.deployments.children import Child
from durable_jobs.deployments.environment import MARK

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEP}"


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[str], Child]]:
    """Makes children that are gone after the test."""
    made: list[Child] = []
    environment = {"PATH": os.environ["PATH"], MARK: str(tmp_path)}

    def make(program: str) -> Child:
        log = tmp_path / "logs" / "program.log"
        made.append(Child("the program", [sys.executable, "-c", program], environment, log, tmp_path))
        return made[-1]

    yield make
    marked.stop_all(tmp_path, timedelta(0), lambda: True)
    for one in made:
        one.forget()


def test_a_child_that_dies_is_started_again_and_people_are_told(
    tmp_path: Path, child: Callable[[str], Child]
) -> None:
    told: list[str] = []
    program = child("print('born', flush=True); raise SystemExit(3)")
    program.start()
    wait_for(lambda: not program.is_running)
    assert program.last_words() == "born"
    wait_for(lambda: program.revive(told.append) or len(told) == 2)
    assert (
        told[0] == f"the program ended (exit code 3); starting it again. Its log: {tmp_path}/logs/program.log"
    )
    wait_for(lambda: program.last_words().count("born") == 3)


def test_restarts_get_rarer(tmp_path: Path, child: Callable[[str], Child]) -> None:
    moments: list[float] = []
    program = child("raise SystemExit(1)")
    program.start()
    wait_for(lambda: program.revive(lambda _: moments.append(time.monotonic())) or len(moments) == 3)
    assert moments[2] - moments[1] > 1.5 * (moments[1] - moments[0])


def test_a_running_child_is_left_alone(tmp_path: Path, child: Callable[[str], Child]) -> None:
    told: list[str] = []
    program = child(SLEEP)
    program.start()
    program.revive(told.append)
    assert (program.is_running, told) == (True, [])


def test_a_large_log_is_moved_aside(
    tmp_path: Path, child: Callable[[str], Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("durable_jobs.deployments.children.LOG_BYTES_KEPT", 10)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "program.log").write_text("an old and long story")
    program = child("pass")
    program.start()
    program.forget()
    assert (tmp_path / "logs" / "program.log.1").read_text() == "an old and long story"
    assert program.last_words() == ""


def test_what_a_marked_process_starts_is_found_and_a_stranger_is_not(
    tmp_path: Path, child: Callable[[str], Child]
) -> None:
    program = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    with subprocess.Popen(["sleep", "600"]) as stranger:
        child(program).start()
        wait_for(lambda: {p.name() for p in marked.marked_processes(tmp_path)} >= {"sleep"})
        assert len(marked.marked_processes(tmp_path)) == 2
        marked.stop_all(tmp_path, timedelta(seconds=5), lambda: False)
        assert marked.marked_processes(tmp_path) == []
        assert stranger.poll() is None
        stranger.kill()


def test_who_does_not_end_in_time_is_killed(tmp_path: Path, child: Callable[[str], Child]) -> None:
    program = child(STUBBORN)
    program.start()
    wait_for(lambda: program.last_words() == "up")
    began = time.monotonic()
    marked.stop(marked.marked_processes(tmp_path), timedelta(seconds=0.5), lambda: False)
    assert time.monotonic() - began < 30
    assert not program.is_running


def test_a_second_ctrl_c_ends_the_waiting(tmp_path: Path, child: Callable[[str], Child]) -> None:
    program = child(STUBBORN)
    program.start()
    wait_for(lambda: program.last_words() == "up")
    began = time.monotonic()
    marked.stop(marked.marked_processes(tmp_path), timedelta(seconds=60), lambda: True)
    assert time.monotonic() - began < 30
    assert not program.is_running


def test_ctrl_c_in_the_terminal_reaches_the_parent_only(
    tmp_path: Path, child: Callable[[str], Child]
) -> None:
    program = child(SLEEP)
    program.start()
    (process,) = marked.marked_processes(tmp_path)
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    process.send_signal(signal.SIGKILL)
    psutil.wait_procs([process], timeout=60)
    program.forget()
