"""The store with several writers at once, and with writers killed by SIGKILL at any step."""

import contextlib
import fcntl
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_jobs.documents import leftovers
from durable_jobs.documents.store import DocumentStore

STORE_MANY = """
import random, sys
from pathlib import Path
import pytest

from durable_jobs.documents import leftovers
from durable_jobs.documents.store import DocumentStore
store = DocumentStore(Path(sys.argv[1]))
rng = random.Random(int(sys.argv[2]))
for _ in range(int(sys.argv[3])):
    with store.write() as writer:
        for _ in range(4):
            writer.write(rng.randbytes(60_000))
        print(writer.publish().sha256, flush=True)
"""

WRITE_HALF = """
import os, sys
from pathlib import Path
import pytest

from durable_jobs.documents import leftovers
from durable_jobs.documents.store import DocumentStore
with DocumentStore(Path(sys.argv[1])).write() as writer:
    writer.write(os.urandom(1_000_000))
    print("half", flush=True)
    sys.stdin.read()
"""

KILLED_AT_EVERY_STEP = """
import os, signal, sys
from pathlib import Path
import pytest

from durable_jobs.documents import leftovers
from durable_jobs.documents.store import DocumentStore

def store_one(folder):
    with DocumentStore(folder).write() as writer:
        writer.write(b"content" * 100_000)
        writer.publish()

def killed_at(step, folder):
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    steps = iter(range(step, -1, -1))
    def hook(event, _):
        if event.startswith(("open", "os.", "fcntl.")) and next(steps, None) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(hook)
    store_one(folder)
    os._exit(0)

step = 0
while killed_at(step, Path(sys.argv[1]) / str(step)):
    step += 1
    if step > 500:
        sys.exit("never came to the end")
print(step)
"""


@contextlib.contextmanager
def python(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_two_processes_store_the_same_contents_at_once(tmp_path: Path) -> None:
    with python(STORE_MANY, tmp_path, 7, 40) as one, python(STORE_MANY, tmp_path, 7, 40) as two:
        told = one.communicate()[0].split(), two.communicate()[0].split()

    store = DocumentStore(tmp_path)
    assert told[0] == told[1]
    assert len(told[0]) == 40
    assert sorted(store.digests()) == sorted(told[0])
    for sha256 in told[0]:
        assert store.verify(sha256).size == 240_000
    assert list(store.incoming.iterdir()) == []


def test_killed_at_any_moment_everything_told_is_stored_and_everything_stored_is_sound(
    tmp_path: Path,
) -> None:
    store = DocumentStore(tmp_path)
    told: set[str] = set()
    for round_ in range(2):
        with python(STORE_MANY, tmp_path, round_, 100_000) as writer:
            assert writer.stdout is not None
            told |= {writer.stdout.readline().strip() for _ in range(3)}
            time.sleep(0.005 * round_)  # not a wait for anything: it spreads the kills over the steps
            writer.kill()
            told |= {line.strip() for line in writer.stdout if line.endswith("\n")}

    stored = set(store.digests())
    assert told <= stored
    for sha256 in stored:
        store.verify(sha256)


def test_killed_at_every_step_leaves_no_half_object_and_the_next_writer_cleans_up(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"content" * 100_000).hexdigest()
    with python(KILLED_AT_EVERY_STEP, tmp_path) as process:
        steps = int(process.communicate()[0])

    assert steps > 10
    left = 0
    for step in range(steps + 1):
        store = DocumentStore(tmp_path / str(step))
        for found in store.digests():
            assert store.verify(found).sha256 == sha256
        left += len(list(store.incoming.iterdir()))
        with store.write() as writer:
            writer.write(b"content" * 100_000)
            assert writer.publish().sha256 == sha256
        assert list(store.digests()) == [sha256]
        assert list(store.incoming.iterdir()) == []
    assert left > 0, "no kill came while a document was being written"


def test_only_the_files_of_dead_writers_are_removed(tmp_path: Path) -> None:
    store = DocumentStore(tmp_path)
    with python(WRITE_HALF, tmp_path) as dead, python(WRITE_HALF, tmp_path) as living:
        for process in (dead, living):
            assert process.stdout is not None
            assert process.stdout.readline() == "half\n"
        assert len(list(store.incoming.iterdir())) == 2
        assert list(store.digests()) == []
        dead.kill()
        dead.wait()

        with store.write() as writer:
            writer.write(b"another")
            writer.publish()

        assert len(list(store.incoming.iterdir())) == 1
        living.communicate("go on")
        assert living.returncode == 0
    assert list(store.incoming.iterdir()) == []


def test_a_file_taken_for_a_leftover_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DocumentStore(tmp_path)
    flock = fcntl.flock

    def flock_after_a_sweep(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        assert leftovers.sweep(store.incoming) == 1
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock_after_a_sweep)
    with store.write() as writer:
        writer.write(b"content")
        stored = writer.publish()

    assert store.verify(stored.sha256).size == 7


def test_what_is_no_leftover_does_not_stop_a_writer(tmp_path: Path) -> None:
    store = DocumentStore(tmp_path)
    (store.incoming / "a-folder").mkdir()
    (store.incoming / "a-link").symlink_to(tmp_path / "nowhere")

    with store.write() as writer:
        writer.write(b"content")
        writer.publish()

    assert len(list(store.digests())) == 1
