"""Archiving a document: stored and listed once, however often it is done and wherever it was interrupted."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from durable_jobs.documents.archiving import archive, index_of
from durable_jobs.documents.errors import DigestMismatch, DocumentError, DocumentVanished
from durable_jobs.documents.payload import ArchivedDocument, ArchiveDocument
from durable_jobs.documents.samples import write_samples
from durable_jobs.documents.store import DocumentStore


def run(source: Path, store: Path, *, by: str = "job 1", **more: Any) -> ArchivedDocument:
    request = ArchiveDocument(source=str(source), store=store, **more)
    return archive(request, archived_by=by, watch=lambda _read, _all: None)


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "letter.txt"
    path.write_bytes(b"Dear reader, " * 1000)
    return path


def test_a_document_is_stored_and_listed(document: Path, tmp_path: Path) -> None:
    result = run(document, tmp_path / "store")

    sha256 = hashlib.sha256(document.read_bytes()).hexdigest()
    assert result.sha256 == sha256
    assert result.size == 13_000
    assert result.stored_size < 200
    assert result.media_type == "text/plain"
    assert b"".join(DocumentStore(tmp_path / "store").read(sha256)) == document.read_bytes()
    (entry,) = index_of(tmp_path / "store").entries()
    assert (entry.source, entry.sha256, entry.archived_by) == (str(document), sha256, "job 1")
    assert (entry.size, entry.stored_size, entry.media_type) == (13_000, result.stored_size, "text/plain")


def test_archiving_again_changes_nothing(document: Path, tmp_path: Path) -> None:
    first = run(document, tmp_path / "store", by="job 1")
    listed = list(index_of(tmp_path / "store").entries())

    second = run(document, tmp_path / "store", by="job 2")

    assert second == first.model_copy(update={"already_stored": True})
    assert list(index_of(tmp_path / "store").entries()) == listed


def test_a_crash_between_storing_and_listing_is_made_good(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as crashed:
        crashed.setattr("durable_jobs.documents.archiving.index_of", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(document, tmp_path / "store")
    assert list(index_of(tmp_path / "store").entries()) == []

    assert run(document, tmp_path / "store").already_stored
    assert len(list(index_of(tmp_path / "store").entries())) == 1


def test_only_the_expected_document_is_archived(document: Path, tmp_path: Path) -> None:
    sha256 = hashlib.sha256(document.read_bytes()).hexdigest()
    with pytest.raises(DigestMismatch, match=f"has the sha256 {sha256}, expected was {'0' * 64}"):
        run(document, tmp_path / "store", expected_sha256="0" * 64)
    assert list(DocumentStore(tmp_path / "store").digests()) == []
    assert run(document, tmp_path / "store", expected_sha256=sha256.upper()).sha256 == sha256


def test_no_archive_is_made_for_a_document_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DocumentVanished):
        run(tmp_path / "gone", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_progress_is_told_and_can_end_it(document: Path, tmp_path: Path) -> None:
    class Cancelled(Exception):
        pass

    seen = []

    def watch(read: int, total: int) -> None:
        seen.append((read, total))
        raise Cancelled

    request = ArchiveDocument(source=str(document), store=tmp_path / "store")
    with pytest.raises(Cancelled):
        archive(request, archived_by="job 1", watch=watch)
    assert seen == [(13_000, 13_000)]
    assert list(DocumentStore(tmp_path / "store").digests()) == []


@pytest.mark.parametrize("archived_before", [False, True])
def test_reading_back_can_be_ended_too(document: Path, tmp_path: Path, archived_before: bool) -> None:
    if archived_before:
        run(document, tmp_path / "store")
    calls = 0

    def watch(_read: int, _total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:  # the document is one chunk, so this is the first of those that are read back
            raise RuntimeError

    request = ArchiveDocument(source=str(document), store=tmp_path / "store")
    with pytest.raises(RuntimeError):
        archive(request, archived_by="job 2", watch=watch)
    store = DocumentStore(tmp_path / "store")
    assert len(list(store.digests())) == archived_before
    assert list(store.incoming.iterdir()) == []


def test_the_samples_are_archived_except_those_that_fail_for_a_reason(tmp_path: Path) -> None:
    samples = write_samples(tmp_path / "documents")
    archived, failed = {}, {}
    for path in samples:
        try:
            archived[path.name] = run(path, tmp_path / "store")
        except DocumentError as error:
            failed[path.name] = type(error).__name__

    assert len(archived) == 40
    assert failed == {
        "backup-of-everything.tar": "DocumentTooLarge",
        "deleted-meanwhile.txt": "DocumentVanished",
        "contracts.pdf": "NotADocument",
        "link-to-nothing.txt": "DocumentVanished",
        "scanner.pipe": "NotADocument",
        "board-only.txt": "DocumentUnreadable",
    }
    # Two have the same content, and files of one byte are stored as well.
    store = DocumentStore(tmp_path / "store")
    assert len(list(store.digests())) == 39
    assert archived["copy-of-minutes-000.md"].already_stored
    assert len(list(index_of(tmp_path / "store").entries())) == 40
    for result in archived.values():
        assert store.verify(result.sha256).size == result.size == Path(result.source).stat().st_size
