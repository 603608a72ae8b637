"""Opening a document: every real reason not to archive it is told apart, and nothing can hang."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_jobs.documents.errors import (
    DocumentChanged,
    DocumentError,
    DocumentTooLarge,
    DocumentUnreadable,
    DocumentVanished,
    NotADocument,
)
from durable_jobs.documents.source import open_document
from durable_jobs.errors import NotRetryable

LIMIT = 10_000_000


def read(path: Path, limit: int = LIMIT) -> bytes:
    with open_document(path, limit) as document:
        return b"".join(document.chunks())


@contextmanager
def as_another_user() -> Iterator[None]:
    """Root reads everything, so a test that runs as root becomes somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("size", [0, 1, 262_143, 262_144, 262_145, 1_000_000])
def test_a_document_is_read_whole(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    path = tmp_path / "document"
    path.write_bytes(content)
    assert read(path) == content
    assert read(path, limit=max(size, 1)) == content


def test_a_link_to_a_document_is_followed(tmp_path: Path) -> None:
    (tmp_path / "document").write_bytes(b"content")
    (tmp_path / "link").symlink_to("document")
    assert read(tmp_path / "link") == b"content"


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DocumentVanished, match=r"nothing at .*gone\.txt"):
        read(tmp_path / "gone.txt")
    (tmp_path / "file").touch()
    with pytest.raises(DocumentVanished):
        read(tmp_path / "file" / "inside.txt")


def test_a_link_to_nothing_names_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target.txt")
    with pytest.raises(DocumentVanished, match=r"link to .*target\.txt"):
        read(tmp_path / "link")


def test_a_folder_in_place_of_a_document(tmp_path: Path) -> None:
    with pytest.raises(NotADocument, match="is a folder"):
        read(tmp_path)


def test_a_pipe_is_refused_at_once_whether_or_not_somebody_writes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    started = time.monotonic()
    with pytest.raises(NotADocument, match="a named pipe"):
        read(tmp_path / "pipe")
    assert time.monotonic() - started < 30


def test_a_pipe_that_takes_the_files_place_at_the_last_moment_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "document"
    path.write_bytes(b"content")
    stat = Path.stat

    def stat_then_replace(self: Path, **options: bool) -> os.stat_result:
        found = stat(self, **options)
        if self == path:
            path.unlink()
            os.mkfifo(path)
        return found

    monkeypatch.setattr(Path, "stat", stat_then_replace)
    with pytest.raises(NotADocument, match="a named pipe"):
        read(path)


def test_a_device_and_a_socket_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotADocument, match="a device"):
        read(Path("/dev/zero"))
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(NotADocument, match="a socket"):
            read(tmp_path / "socket")


def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_bytes(b"content")
    path.chmod(0)
    with (
        pytest.raises(DocumentUnreadable, match=r"secret.txt cannot be read: Permission denied"),
        as_another_user(),
    ):
        read(path)


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(DocumentUnreadable, match="Too many levels of symbolic links"):
        read(tmp_path / "loop")


def test_over_the_limit_is_final(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"12345")
    assert read(path, limit=5) == b"12345"
    with pytest.raises(DocumentTooLarge, match="has 5 bytes, over the limit of 4") as failure:
        read(path, limit=4)
    assert isinstance(failure.value, NotRetryable)
    assert isinstance(failure.value, DocumentError)


def test_growing_while_being_read(tmp_path: Path) -> None:
    path = tmp_path / "growing"
    path.write_bytes(b"x" * 600_000)
    with (
        pytest.raises(DocumentChanged, match="had 600000 bytes, now"),
        open_document(path, LIMIT) as document,
    ):
        for _ in document.chunks():
            with path.open("ab") as file:
                file.write(b"more" * 100_000)  # faster than it is read: without a bound this never ends


def test_cut_while_being_read(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"x" * 600_000)
    with (
        pytest.raises(DocumentChanged, match="had 600000 bytes, now 10"),
        open_document(path, LIMIT) as document,
    ):
        for _ in document.chunks():
            os.truncate(path, 10)


def test_changed_in_place_while_being_read(tmp_path: Path) -> None:
    path = tmp_path / "changed"
    path.write_bytes(b"x" * 600_000)
    os.utime(path, (1, 1))  # the change then has another time, however coarse the file system's clock is
    with (
        pytest.raises(DocumentChanged, match="had 600000 bytes, now 600000"),
        open_document(path, LIMIT) as document,
    ):
        for _ in document.chunks():
            with path.open("r+b") as file:
                file.write(b"y")


def test_a_file_that_tells_another_size_than_it_has(tmp_path: Path) -> None:
    for path in (Path("/proc/self/status"), Path("/sys/kernel/mm/transparent_hugepage/enabled")):
        if path.exists():
            with pytest.raises(DocumentChanged):
                read(path)


def test_deleted_while_being_read_is_still_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "deleted"
    path.write_bytes(b"x" * 600_000)
    with open_document(path, LIMIT) as document:
        chunks = document.chunks()
        first = next(chunks)
        path.unlink()
        assert first + b"".join(chunks) == b"x" * 600_000
