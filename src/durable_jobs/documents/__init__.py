"""DOCUMENT_ARCHIVE: files into a content-addressed store."""

from durable_jobs.documents.job_type import ARCHIVE_QUEUE, archive_document
from durable_jobs.documents.payload import ArchivedDocument, ArchiveDocument

__all__ = ["ARCHIVE_QUEUE", "ArchiveDocument", "ArchivedDocument", "archive_document"]
