"""Why a document was not archived, or cannot be read back; every message names the path and the way out."""

from __future__ import annotations

from durable_jobs.errors import BadInput, DurableJobsError, NotRetryable


class DocumentError(DurableJobsError):
    """A document could not be archived."""


class DocumentVanished(DocumentError):
    """There is nothing at the document's path (any more)."""


class DocumentUnreadable(DocumentError):
    """There is something at the document's path, and it may not or cannot be read."""


class NotADocument(DocumentError):
    """What is at the path is not a regular file: a folder, a pipe, a socket or a device."""


class DocumentTooLarge(DocumentError, NotRetryable):
    """The document is over the limit of bytes; the same document will be over it next time."""


class DocumentChanged(DocumentError):
    """The document was written to while it was being read."""


class FolderNotAllowed(DocumentError):
    """The settings do not allow to archive from this folder, or to this one."""


class ArchivingStopped(DocumentError):
    """The job was cancelled, has timed out, or its shift ends."""


class DigestMismatch(DocumentError):
    """The document is not the one that was expected: its sha256 differs."""


class ArchiveError(DurableJobsError):
    """The archive cannot do what was asked."""


class InvalidDigest(ArchiveError, BadInput):
    """A sha256 is written as 64 lower-case hexadecimal digits; this is not one."""


class ArchiveNotWritable(ArchiveError):
    """The archive's folder cannot be written to."""


class ObjectNotStored(ArchiveError):
    """The archive holds no object with this sha256."""


class ObjectCorrupt(ArchiveError):
    """What the archive holds under this sha256 is not what was stored."""


class ObjectUnreadable(ArchiveError):
    """The archive holds this object, and the system does not let it be read."""
