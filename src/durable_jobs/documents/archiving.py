"""Archiving one document: read it once, store it, list it; in this order.

Invariant: doing it again, after a failure, a crash or a success, ends in one object and one entry. A crash
between storing and listing leaves an object without an entry, and the next run lists it.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from durable_jobs.documents.errors import DigestMismatch
from durable_jobs.documents.index import ArchiveIndex, Entry
from durable_jobs.documents.payload import ArchivedDocument, ArchiveDocument
from durable_jobs.documents.source import OpenDocument, open_document
from durable_jobs.documents.store import DocumentStore, ObjectWriter, StoredObject

INDEX_NAME = "index.sqlite3"

Watch = Callable[[int, int], None]
"""Called often with the bytes read and the bytes in all; what it raises ends the archiving."""


def archive(request: ArchiveDocument, *, archived_by: str, watch: Watch) -> ArchivedDocument:
    """Archive one document.

    Args:
        request: which document, and where to.
        archived_by: what the index names as the origin of the entry: the job's id.
        watch: told of the progress.

    Raises:
        DocumentError: the document cannot be archived; nothing was stored.
        ArchiveError: the archive cannot take it.
    """
    stored = _store(request, watch)
    media_type = mimetypes.guess_type(request.path.name)[0] or "application/octet-stream"
    index_of(request.store).add(
        Entry(
            source=request.source,
            sha256=stored.sha256,
            size=stored.size,
            stored_size=stored.stored_size,
            media_type=media_type,
            archived_at=datetime.now(UTC),
            archived_by=archived_by,
        )
    )
    return ArchivedDocument(
        source=request.source,
        sha256=stored.sha256,
        size=stored.size,
        stored_size=stored.stored_size,
        media_type=media_type,
        object_path=str(stored.path),
        already_stored=stored.already_stored,
    )


def index_of(store: Path) -> ArchiveIndex:
    """The index of the archive in this folder."""
    return ArchiveIndex(store / INDEX_NAME)


def _store(request: ArchiveDocument, watch: Watch) -> StoredObject:
    # The document first: an archive is not made for one that cannot be read.
    with (
        open_document(request.path, request.max_bytes) as document,
        DocumentStore(request.store).write() as writer,
    ):
        _copy(document, writer, watch)
        if request.expected_sha256 not in (None, writer.sha256):
            raise DigestMismatch(
                f"{document.path} has the sha256 {writer.sha256}, expected was {request.expected_sha256};"
                " it was not archived: see which of the two is right"
            )
        return writer.publish(meanwhile=lambda: watch(document.size, document.size))


def _copy(document: OpenDocument, writer: ObjectWriter, watch: Watch) -> None:
    for chunk in document.chunks():
        writer.write(chunk)
        watch(writer.size, document.size)
