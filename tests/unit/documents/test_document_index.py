"""The index: each path and content once, whoever writes at once and whoever is killed."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from durable_jobs.documents.index import ArchiveIndex, Entry, IndexUnavailable

ADD_MANY = """
import sys
from datetime import datetime, UTC
from pathlib import Path
from durable_jobs.documents.index import ArchiveIndex, Entry
index = ArchiveIndex(Path(sys.argv[1]))
for n in range(int(sys.argv[2])):
    entry = Entry(f"/documents/{n}", "0" * 64, 1, 14, "text/plain", datetime.now(UTC), sys.argv[3])
    print(n, int(index.add(entry)), flush=True)
"""


@pytest.fixture
def index(tmp_path: Path) -> ArchiveIndex:
    return ArchiveIndex(tmp_path / "index.sqlite3")


def entry(source: str = "/documents/letter.txt", sha256: str = "a" * 64, by: str = "job 1") -> Entry:
    return Entry(source, sha256, 10, 20, "text/plain", datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC), by)


def test_entries_come_back_as_they_were_added_and_in_that_order(index: ArchiveIndex) -> None:
    added = [entry(f"/documents/Grüße {n}.txt") for n in range(3)]
    assert [index.add(one) for one in added] == [True, True, True]
    assert list(index.entries()) == added


def test_the_same_path_and_content_is_listed_once(index: ArchiveIndex) -> None:
    assert index.add(entry(by="job 1"))
    assert not index.add(entry(by="job 2"))
    assert index.add(entry(sha256="b" * 64, by="job 3"))
    assert [found.archived_by for found in index.entries()] == ["job 1", "job 3"]


def test_times_are_kept_in_utc(index: ArchiveIndex) -> None:
    east = datetime(2026, 3, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    index.add(Entry("/a", "a" * 64, 1, 1, "text/plain", east, "job"))
    (found,) = index.entries()
    assert found.archived_at == east
    assert found.archived_at.tzinfo is UTC


def test_an_index_that_was_never_written_is_empty(index: ArchiveIndex) -> None:
    assert list(index.entries()) == []
    assert not index.path.exists()
    index.path.touch()  # a writer was killed between making the file and its table
    assert list(index.entries()) == []
    assert index.add(entry())


def test_more_entries_than_a_page(index: ArchiveIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("durable_jobs.documents.index._PAGE", 3)
    for n in range(7):
        index.add(entry(f"/documents/{n}"))
    assert [found.source for found in index.entries()] == [f"/documents/{n}" for n in range(7)]


def test_an_open_list_does_not_hold_up_writers(index: ArchiveIndex) -> None:
    index.add(entry("/a"))
    reading = index.entries()
    next(reading)
    assert ArchiveIndex(index.path, patience=timedelta(0)).add(entry("/b"))
    assert [found.source for found in reading] == ["/b"]


def test_several_processes_add_at_once(index: ArchiveIndex) -> None:
    arguments = [sys.executable, "-c", ADD_MANY, str(index.path), "60"]
    writers = [subprocess.Popen([*arguments, name], stdout=subprocess.PIPE, text=True) for name in "ab"]
    told = "".join(writer.communicate()[0] for writer in writers).splitlines()

    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(found.source for found in index.entries()) == sorted(f"/documents/{n}" for n in range(60))
    assert sum(line.endswith(" 1") for line in told) == 60


def test_what_was_added_before_a_kill_is_listed(index: ArchiveIndex) -> None:
    arguments = [sys.executable, "-c", ADD_MANY, str(index.path), "100000", "killed"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = [writer.stdout.readline() for _ in range(10)]
        writer.kill()
        told += [line for line in writer.stdout if line.endswith("\n")]

    listed = [found.source for found in index.entries()]
    assert listed[: len(told)] == [f"/documents/{n}" for n in range(len(told))]
    assert len(listed) - len(told) in (0, 1)
    assert index.add(entry("/documents/after"))


def test_a_damaged_index_is_named(index: ArchiveIndex) -> None:
    index.path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(IndexUnavailable, match=str(index.path)):
        index.add(entry())
    with pytest.raises(IndexUnavailable, match="integrity_check"):
        list(index.entries())
