"""`durable-jobs demo`, as on a fresh machine."""

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.stack_process import PROGRAM, bare_environment, wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A temporary folder of its own for the demo, to see what it leaves there."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o711)
        yield Path(name)


def start(scratch: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [PROGRAM, "demo", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=bare_environment() | {"TMPDIR": str(scratch), "COLUMNS": "160"},
    )


def processes_of(scratch: Path) -> list[str]:
    done = subprocess.run(["ps", "-eo", "args"], check=True, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if str(scratch) in line]


def test_it_archives_documents_tells_why_some_failed_survives_the_death_of_a_shift_and_retries(
    scratch: Path,
) -> None:
    began = time.monotonic()
    with start(scratch) as demo:
        output, _ = demo.communicate(timeout=400)
    assert demo.returncode == 0, output
    # Less than 90 s on a machine that does nothing else; other tests run beside this one.
    others = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert time.monotonic() - began < 90 * (1 + others)
    assert "DocumentTooLarge" in output
    assert "DocumentVanished" in output
    assert "the same content is stored already" in output
    assert "44 documents archived" in output
    assert "kill -9: the shift" in output
    assert "jobs were being executed when their shift was killed (-9); they were run again" in output
    assert "executed again after its shift was killed: " in output
    job_id = re.search(r"Job (\S+) failed, because arrives-late.txt was not there", output)
    assert job_id is not None
    assert re.search(rf"jobs-dlq-retry retried it as job (?!{job_id[1]})\S+, which is SUCCEEDED", output)
    assert re.search(r"arrives-late.txt +│ SUCCEEDED │ retried", output)
    assert re.search(r"the event jobs.job.retried: http://127\.0\.0\.1:\d+/events/event/\S+", output)
    assert "/runs/flow-run/" in output
    assert list(scratch.iterdir()) == []
    assert processes_of(scratch) == []


def test_ctrl_c_cleans_up_and_a_killed_demo_is_swept_by_the_next(scratch: Path) -> None:
    with start(scratch) as killed:
        wait_for(lambda: any(scratch.glob("*/home/postgres/data")), 120, "a cluster")
        killed.kill()
        killed.communicate()
    with start(scratch, "--keep") as demo:
        os.set_blocking(demo.stdout.fileno() if demo.stdout else -1, True)
        assert demo.stdout is not None
        lines = [line for line, _ in zip(demo.stdout, range(3), strict=False)]
        demo.send_signal(signal.SIGINT)
        output = "".join(lines) + demo.communicate(timeout=400)[0]
    assert "Removed what 1 killed demos had left behind" in output
    assert demo.returncode == 130
    assert list(scratch.iterdir()) == []
    assert processes_of(scratch) == []


def test_a_folder_that_is_not_there_is_named(scratch: Path) -> None:
    with start(scratch, "--documents", str(scratch / "nowhere")) as demo:
        output, _ = demo.communicate(timeout=400)
    assert demo.returncode == 2
    assert "nowhere" in output
