"""DOCUMENT_ARCHIVE as a job: declared as documented, reports progress, can be stopped, keeps to its folders."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from durable_jobs.context import JobContext
from durable_jobs.documents import ArchiveDocument, archive_document
from durable_jobs.documents.archiving import index_of
from durable_jobs.documents.errors import ArchivingStopped, FolderNotAllowed
from durable_jobs.documents.store import DocumentStore
from durable_jobs.jobs import ClaimedJob
from durable_jobs.loading import load_registry

JOB_ID = UUID("01890000-0000-7000-8000-000000000001")


@pytest.fixture
def context() -> Callable[[list[str]], JobContext]:
    job = ClaimedJob(
        job_id=JOB_ID,
        claim_token=JOB_ID,
        tenant_id="default",
        job_type="DOCUMENT_ARCHIVE",
        queue="archive",
        payload="{}",
        payload_version=1,
        retry_count=0,
        max_retries=3,
        root_job_id=JOB_ID,
        correlation_id=None,
        deadline_at=datetime.now(UTC),
        timeout=timedelta(minutes=10),
    )
    return lambda reports: JobContext(job, lambda _job, text: reports.append(text))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "letter.txt"
    path.parent.mkdir()
    path.write_bytes(b"x" * 600_000)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_it_is_found_and_declared_as_documented() -> None:
    declared = load_registry([]).job_type("DOCUMENT_ARCHIVE")
    assert declared.queue == "archive"
    assert declared.max_retries == 3
    assert declared.retryable
    assert declared.timeout == timedelta(minutes=10)
    assert declared.on_orphan == "replay"
    assert not declared.is_async
    queue = load_registry([]).queue("archive")
    assert (queue.concurrency, queue.max_pending) == (10, 1000)


def test_it_archives_tells_its_progress_and_signs_with_its_id(
    document: Path, store: Path, context: Callable[..., JobContext]
) -> None:
    reports: list[str] = []

    done = archive_document(ArchiveDocument(source=str(document), store=store), context(reports))

    assert done.size == 600_000
    assert json.loads(reports[-1]) == {
        "current": 600_000,
        "total": 600_000,
        "message": "reading back what was stored",
    }
    assert [json.loads(report)["current"] for report in reports] == [262_144, 524_288, *[600_000] * 4]
    (entry,) = index_of(store).entries()
    assert entry.archived_by == str(JOB_ID)


def test_it_stops_when_asked_and_stores_nothing(
    document: Path, store: Path, context: Callable[..., JobContext]
) -> None:
    stopped = context([])
    stopped.stop()
    with pytest.raises(ArchivingStopped, match="262,144 of 600,000 bytes"):
        archive_document(ArchiveDocument(source=str(document), store=store), stopped)
    assert list(DocumentStore(store).digests()) == []


def test_outside_development_the_folders_must_be_named(
    document: Path, store: Path, context: Callable[..., JobContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ArchiveDocument(source=str(document), store=store)
    monkeypatch.setenv("DURABLE_JOBS_ENVIRONMENT", "production")
    with pytest.raises(FolderNotAllowed, match="ARCHIVE_SOURCES allows no folder"):
        archive_document(request, context([]))
    monkeypatch.setenv("DURABLE_JOBS_ARCHIVE_SOURCES", f"/elsewhere, {document.parent}")
    with pytest.raises(FolderNotAllowed, match="ARCHIVE_STORES allows no folder"):
        archive_document(request, context([]))
    monkeypatch.setenv("DURABLE_JOBS_ARCHIVE_STORES", str(store))
    assert archive_document(request, context([])).size == 600_000


@pytest.mark.parametrize("way", ["dots", "link to a file", "link to a folder", "name that only begins so"])
def test_nothing_leads_out_of_the_named_folders(
    document: Path,
    store: Path,
    way: str,
    context: Callable[..., JobContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = document.parent.parent / "allowed"
    allowed.mkdir()
    monkeypatch.setenv("DURABLE_JOBS_ARCHIVE_SOURCES", str(allowed))
    (allowed / "file").symlink_to(document)
    (allowed / "folder").symlink_to(document.parent)
    beside = allowed.with_name("allowed-not")
    beside.mkdir()
    (beside / "x").touch()
    source = {
        "dots": allowed / ".." / "in" / "letter.txt",
        "link to a file": allowed / "file",
        "link to a folder": allowed / "folder" / "letter.txt",
        "name that only begins so": beside / "x",
    }[way]
    with pytest.raises(FolderNotAllowed, match="DURABLE_JOBS_ARCHIVE_SOURCES allows"):
        archive_document(ArchiveDocument(source=str(source), store=store), context([]))
    assert not store.exists()
