"""A document on disk, opened so that nothing can hang, overrun or change unnoticed.

Invariant: what `chunks` yields up to its end is the whole document as it was at one moment, and is never more
than the limit. A pipe or a device is refused without being opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from durable_jobs.documents.compression import CHUNK_BYTES
from durable_jobs.documents.errors import (
    DocumentChanged,
    DocumentError,
    DocumentTooLarge,
    DocumentUnreadable,
    DocumentVanished,
    NotADocument,
)

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class OpenDocument:
    """A regular file, open for reading; `size` is in bytes, as it was when the file was opened."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._opened = os.fstat(descriptor)
        self.size = self._opened.st_size

    def chunks(self) -> Iterator[bytes]:
        """Yield the document's bytes, in chunks of bounded size.

        Raises:
            DocumentChanged: it was written to meanwhile; what was yielded is of no use.
            DocumentUnreadable: the disk gave an error.
        """
        left = self.size
        with _explained(self.path):
            # One byte more than expected shows that the file has grown; after it, nothing more is asked for.
            while chunk := os.read(self._descriptor, min(CHUNK_BYTES, left + 1)):
                left -= len(chunk)
                yield chunk
            self._check_unchanged(left)

    def _check_unchanged(self, left: int) -> None:
        now = os.fstat(self._descriptor)
        if left or (now.st_size, now.st_mtime_ns) != (self.size, self._opened.st_mtime_ns):
            raise DocumentChanged(
                f"{self.path} changed while it was being read (it had {self.size} bytes, now"
                f" {now.st_size}); retry the job when it is no longer written to"
            )


@contextmanager
def open_document(path: Path, max_bytes: int) -> Iterator[OpenDocument]:
    """Open the document at `path`, which may be a symbolic link, if it has `max_bytes` bytes at most.

    Raises:
        DocumentVanished: nothing is there.
        NotADocument: a folder, a pipe, a socket or a device is there.
        DocumentUnreadable: it may not or cannot be read.
        DocumentTooLarge: it is over the limit; not a byte of it was read.
    """
    with _explained(path):
        _check_regular(path, path.stat().st_mode)
        # Should a pipe take the file's place right now, opening it must not wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check_regular(path, os.fstat(descriptor).st_mode)
        document = OpenDocument(path, descriptor)
        if document.size > max_bytes:
            raise DocumentTooLarge(
                f"{path} has {document.size:,} bytes, over the limit of {max_bytes:,};"
                " submit it again with a higher max_bytes if it belongs in the archive"
            )
        yield document
    finally:
        os.close(descriptor)


def _check_regular(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "something else")
        raise NotADocument(f"{path} is {kind}, not a file; give the path of one file")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _explanation(path, error) from error


def _explanation(path: Path, error: OSError) -> DocumentError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if path.is_symlink():
            return DocumentVanished(
                f"{path} is a link to {os.path.realpath(path)}, where nothing is (any more)"
            )
        return DocumentVanished(f"there is nothing at {path} (any more); was it moved, renamed or deleted?")
    return DocumentUnreadable(
        f"{path} cannot be read: {error.strerror}; it must be readable for the user that runs the jobs"
    )
