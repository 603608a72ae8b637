"""The built-in job type DOCUMENT_ARCHIVE: archiving made a job, with progress and a way to be stopped."""

from __future__ import annotations

from datetime import timedelta

from durable_jobs.context import JobContext
from durable_jobs.documents.allowed import check_allowed
from durable_jobs.documents.archiving import archive
from durable_jobs.documents.errors import ArchivingStopped
from durable_jobs.documents.payload import ArchivedDocument, ArchiveDocument
from durable_jobs.job_types import job_type
from durable_jobs.queues import Queue
from durable_jobs.settings import Settings

ARCHIVE_QUEUE = Queue("archive", concurrency=10, max_pending=1000)


# "replay", because archiving again what was archived or half archived changes nothing.
@job_type(
    "DOCUMENT_ARCHIVE",
    queue=ARCHIVE_QUEUE,
    max_retries=3,
    timeout=timedelta(minutes=10),
    on_orphan="replay",
)
def archive_document(request: ArchiveDocument, context: JobContext) -> ArchivedDocument:
    """Archive one document; a plain function, because reading, compressing and syncing would hold up a loop.

    Raises:
        DocumentError: the document cannot be archived; nothing was stored.
        ArchiveError: the archive cannot take it.
    """
    check_allowed(request, Settings.load())

    def watch(read: int, total: int) -> None:
        if context.cancelled:
            raise ArchivingStopped(
                f"stopped after {read:,} of {total:,} bytes of {request.source}; nothing stored"
            )
        context.progress(read, total, "bytes read" if read < total else "reading back what was stored")

    done = archive(request, archived_by=str(context.job_id), watch=watch)
    context.logger.info(
        "archived %s: %s bytes as %s (%s stored)", done.source, done.size, done.sha256, done.stored_size
    )
    return done
