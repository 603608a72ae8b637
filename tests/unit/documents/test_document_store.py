"""The store: what goes in comes out, the same content is one object, and damage is found."""

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_jobs.documents.disk import sync_file
from durable_jobs.documents.errors import (
    ArchiveNotWritable,
    InvalidDigest,
    ObjectCorrupt,
    ObjectNotStored,
)
from durable_jobs.documents.store import DocumentStore, StoredObject


@pytest.fixture
def store(tmp_path: Path) -> DocumentStore:
    return DocumentStore(tmp_path / "store")


def put(store: DocumentStore, *chunks: bytes) -> StoredObject:
    with store.write() as writer:
        for chunk in chunks:
            writer.write(chunk)
        return writer.publish()


@settings(max_examples=40, deadline=None)  # each example waits for the disk
@given(chunks=st.lists(st.binary(max_size=3000), max_size=5))
def test_what_was_written_is_read_back(chunks: list[bytes]) -> None:
    content = b"".join(chunks)
    with tempfile.TemporaryDirectory() as folder:
        store = DocumentStore(Path(folder))

        stored = put(store, *chunks)

        assert stored.sha256 == hashlib.sha256(content).hexdigest()
        assert stored.size == len(content)
        assert stored.path == Path(folder) / "objects" / stored.sha256[:2] / stored.sha256[2:]
        assert stored.stored_size == stored.path.stat().st_size
        assert b"".join(store.read(stored.sha256)) == content
        assert list(store.digests()) == [stored.sha256]
        assert list(store.incoming.iterdir()) == []


@settings(max_examples=60, deadline=None)
@given(content=st.binary(min_size=1, max_size=2000), data=st.data())
def test_a_damaged_object_never_gives_other_bytes(content: bytes, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = DocumentStore(Path(folder))
        stored = put(store, content)
        frame = bytearray(stored.path.read_bytes())
        at = data.draw(st.integers(0, len(frame) - 1))
        damage = data.draw(st.sampled_from(["flip", "cut", "append"]))
        if damage == "flip":
            frame[at] ^= data.draw(st.integers(1, 255))
        elif damage == "cut":
            del frame[at:]
        else:
            frame += b"\x01appended"
        rewrite(stored.path, bytes(frame))

        try:
            read = b"".join(store.read(stored.sha256))
        except ObjectCorrupt as error:
            assert str(stored.path) in str(error)  # noqa: PT017 -- either outcome is right, see below
        else:
            # A flip in a field that does not matter, such as the window's size, loses nothing.
            assert read == content
            assert damage != "append"


def test_another_objects_bytes_under_a_name_are_found(store: DocumentStore) -> None:
    right, other = put(store, b"right"), put(store, b"other")
    rewrite(right.path, other.path.read_bytes())

    with pytest.raises(ObjectCorrupt, match="holds other bytes"):
        store.verify(right.sha256)


def test_the_same_content_twice_is_one_object(store: DocumentStore) -> None:
    first = put(store, b"the same")
    inode = first.path.stat().st_ino

    second = put(store, b"the ", b"same")

    assert not first.already_stored
    assert second.already_stored
    assert (second.sha256, second.size, second.stored_size) == (first.sha256, first.size, first.stored_size)
    assert first.path.stat().st_ino == inode
    assert len(list(store.digests())) == 1
    assert list(store.incoming.iterdir()) == []


def test_storing_again_replaces_a_corrupt_object(store: DocumentStore) -> None:
    stored = put(store, b"precious")
    rewrite(stored.path, b"rotten")

    again = put(store, b"precious")

    assert not again.already_stored
    assert b"".join(store.read(stored.sha256)) == b"precious"


def test_nothing_is_stored_without_publish(store: DocumentStore) -> None:
    with store.write() as writer:
        writer.write(b"half a docu")
    with pytest.raises(RuntimeError), store.write() as writer:
        writer.write(b"half a docu")
        raise RuntimeError

    assert list(store.digests()) == []
    assert list(store.incoming.iterdir()) == []


def test_what_does_not_come_back_from_the_disk_is_not_stored(
    store: DocumentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync_to_a_bad_disk(file: BinaryIO) -> None:
        sync_file(file)
        os.pwrite(file.fileno(), b"rotten", 100)

    monkeypatch.setattr("durable_jobs.documents.store.sync_file", sync_to_a_bad_disk)
    with pytest.raises(ObjectCorrupt, match="incoming"):
        put(store, os.urandom(1000))
    assert list(store.digests()) == []
    assert list(store.incoming.iterdir()) == []


def test_the_content_is_on_disk_before_its_name_and_the_name_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(descriptor: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink()}")
        fsync(descriptor)

    def recorded_replace(self: Path, target: Path) -> Path:
        steps.append(f"rename {self} {target}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    root = tmp_path / "a" / "store"
    store = DocumentStore(root)
    made = steps.copy()
    steps.clear()
    stored = put(store, b"content")

    assert made == [f"sync {tmp_path}", f"sync {tmp_path / 'a'}", f"sync {root}", f"sync {root}"]
    incoming = steps[0].removeprefix("sync ")
    assert steps == [
        f"sync {incoming}",
        f"rename {incoming} {stored.path}",
        f"sync {stored.path.parent}",
        f"sync {store.objects}",
    ]


def test_a_name_appears_only_when_the_object_is_complete(store: DocumentStore) -> None:
    with store.write() as writer:
        writer.write(os.urandom(2_000_000))
        assert list(store.digests()) == []
        stored = writer.publish()
    assert list(store.digests()) == [stored.sha256]


def test_an_object_cannot_be_overwritten_by_accident(store: DocumentStore) -> None:
    assert put(store, b"read-only").path.stat().st_mode & 0o222 == 0


def test_a_new_store_is_private_and_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    assert DocumentStore(tmp_path / "a" / "new").folder.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    assert DocumentStore(shared).folder.stat().st_mode & 0o777 == 0o755


def test_unknown_and_malformed_digests_are_refused(store: DocumentStore) -> None:
    with pytest.raises(ObjectNotStored, match="holds no object 0000"):
        store.verify("0" * 64)
    for malformed in ("", "../../etc/passwd", "AB" * 32, "0" * 63, "0" * 64 + "\n"):
        with pytest.raises(InvalidDigest, match="64 lower-case"):
            store.verify(malformed)


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArchiveNotWritable, match=r"File exists \(.*/file\)"):
        DocumentStore(tmp_path / "file" / "store")


def test_a_full_disk_stores_nothing(store: DocumentStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(ArchiveNotWritable, match="make room"), store.write() as writer:
            writer.write(os.urandom(1_000_000))
            writer.publish()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(store.digests()) == []
    assert list(store.incoming.iterdir()) == []


def test_a_large_document_needs_little_memory(tmp_path: Path) -> None:
    document = tmp_path / "large"
    with document.open("wb") as file:
        file.truncate(192 * 1024 * 1024)
    code = """
import resource, sys
from pathlib import Path
from typing import BinaryIO
from durable_jobs.documents.archiving import archive
from durable_jobs.documents.payload import ArchiveDocument
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
archive(ArchiveDocument(source=sys.argv[1], store=sys.argv[2]), archived_by="job", watch=lambda *_: None)
print(peak() - before)
"""
    arguments = [sys.executable, "-c", code, str(document), str(tmp_path / "store")]
    grown_kb = int(subprocess.run(arguments, check=True, capture_output=True).stdout)
    assert grown_kb < 32 * 1024


def rewrite(path: Path, content: bytes) -> None:
    path.chmod(0o600)
    path.write_bytes(content)
