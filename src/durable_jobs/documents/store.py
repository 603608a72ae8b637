"""A content-addressed store on a folder: an object is named by the sha256 of its bytes.

    STORE/objects/ab/cdef...   one object: a zstandard frame, never changed
    STORE/incoming/...         what is being written; a file here is nobody's object

Invariant: whatever is under objects/ was complete, on disk and read back with the right sha256 before it got
its name. Any number of processes may write at once, and each may be killed at any moment: a name appears by
one atomic rename, the same content twice is one object, and what a dead writer left in incoming/ is removed
by the next one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import zstandard

from durable_jobs.documents import leftovers
from durable_jobs.documents.compression import HashingCompressor, decompressed
from durable_jobs.documents.digests import checked_digest
from durable_jobs.documents.disk import make_folder, sync_file, sync_folder
from durable_jobs.documents.errors import ArchiveNotWritable, ObjectCorrupt, ObjectNotStored, ObjectUnreadable


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the store; sizes in bytes, before and after compression."""

    sha256: str
    size: int
    stored_size: int
    path: Path
    already_stored: bool = False
    """A sound object of this content was there before."""


class DocumentStore:
    """The objects in one folder, which is made (private to its owner) when it is missing.

    Raises:
        ArchiveNotWritable: the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        self.incoming = folder / "incoming"
        with _writing_to(folder):
            make_folder(folder, mode=0o700)
            make_folder(self.objects)
            make_folder(self.incoming)

    def path_of(self, sha256: str) -> Path:
        """Where the object of this content is, or would be.

        Raises:
            InvalidDigest: `sha256` is not 64 lower-case hexadecimal digits.
        """
        checked_digest(sha256)
        return self.objects / sha256[:2] / sha256[2:]

    def digests(self) -> Iterator[str]:
        """The sha256 of every object, in no promised order."""
        for path in self.objects.glob("??/*"):
            yield path.parent.name + path.name

    def write(self) -> ObjectWriter:
        """A writer for one new object; leave its `with` block without `publish()` and nothing was stored.

        Raises:
            ArchiveNotWritable: the folder cannot be written to.
        """
        with _writing_to(self.folder):
            leftovers.sweep(self.incoming)
            return ObjectWriter(self, *leftovers.create_locked(self.incoming))

    def read(self, sha256: str) -> Iterator[bytes]:
        """Yield the object's bytes in chunks, and check them: trust them once the iterator has ended.

        Raises:
            ObjectNotStored: there is no such object.
            ObjectCorrupt: it is not what was stored.
            ObjectUnreadable: it is there, and the system does not let it be read.
            InvalidDigest: `sha256` is not 64 lower-case hexadecimal digits.
        """
        path = self.path_of(sha256)
        try:
            with path.open("rb") as file:
                yield from _checked(file, sha256, path)
        except FileNotFoundError as error:
            raise ObjectNotStored(f"the archive {self.folder} holds no object {sha256}") from error
        except OSError as error:
            raise ObjectUnreadable(f"{path} cannot be read: {error.strerror}") from error

    def verify(self, sha256: str, meanwhile: Callable[[], None] = lambda: None) -> StoredObject:
        """Read the whole object and return what it is; `meanwhile` is called often, and may end it.

        Raises:
            ObjectNotStored, ObjectCorrupt, ObjectUnreadable, InvalidDigest: as `read`.
        """
        size = 0
        for chunk in self.read(sha256):
            size += len(chunk)
            meanwhile()
        path = self.path_of(sha256)
        return StoredObject(sha256, size, path.stat().st_size, path, already_stored=True)


class ObjectWriter:
    """Takes one document's bytes; `publish` makes them an object."""

    def __init__(self, store: DocumentStore, path: Path, descriptor: int) -> None:
        self._store = store
        self._path = path
        self._file: BinaryIO = os.fdopen(descriptor, "w+b")
        self._content = HashingCompressor(self._file)

    def __enter__(self) -> ObjectWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After a successful publish the name is gone already. The file goes before its lock does.
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # a full disk was reported by the write itself
            self._file.close()

    @property
    def sha256(self) -> str:
        """Digest of what was written so far."""
        return self._content.sha256

    @property
    def size(self) -> int:
        """How many bytes were written so far."""
        return self._content.size

    def write(self, chunk: bytes) -> None:
        """Take the next bytes of the document.

        Raises:
            ArchiveNotWritable: for instance, the disk is full.
        """
        with _writing_to(self._store.folder):
            self._content.write(chunk)

    def publish(self, meanwhile: Callable[[], None] = lambda: None) -> StoredObject:
        """Make what was written an object: on disk, read back, verified, and only then under its name.

        A sound object of the same content is kept; a corrupt or unreadable one is replaced.

        Args:
            meanwhile: called often while reading back; what it raises ends it, and nothing was stored.

        Raises:
            ArchiveNotWritable: for instance, the disk is full.
            ObjectCorrupt: what came back from the disk is not what was written; nothing was stored.
        """
        with _writing_to(self._store.folder):
            self._content.end()
            sync_file(self._file)
            target = self._store.path_of(self.sha256)
            stored = self._existing(meanwhile) or self._named(target, meanwhile)
            # Also when another process made the object: it may not have come this far yet.
            sync_folder(target.parent)
            sync_folder(self._store.objects)
        return stored

    def _existing(self, meanwhile: Callable[[], None]) -> StoredObject | None:
        with contextlib.suppress(ObjectNotStored, ObjectCorrupt, ObjectUnreadable):
            return self._store.verify(self.sha256, meanwhile)
        return None

    def _named(self, target: Path, meanwhile: Callable[[], None]) -> StoredObject:
        self._file.seek(0)
        for _ in _checked(self._file, self.sha256, self._path):
            meanwhile()
        target.parent.mkdir(exist_ok=True)
        self._path.replace(target)
        status = os.fstat(self._file.fileno())
        os.fchmod(self._file.fileno(), status.st_mode & 0o444)
        return StoredObject(self.sha256, self.size, status.st_size, target)


def _checked(file: BinaryIO, sha256: str, path: Path) -> Iterator[bytes]:
    digest = hashlib.sha256()
    try:
        for chunk in decompressed(file):
            digest.update(chunk)
            yield chunk
    except zstandard.ZstdError as error:
        raise ObjectCorrupt(f"{path} is damaged ({error}); archive its document again") from error
    if digest.hexdigest() != sha256:
        raise ObjectCorrupt(
            f"{path} holds other bytes: their sha256 is {digest.hexdigest()}, not {sha256};"
            " archive the document again to replace it"
        )


@contextlib.contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ArchiveNotWritable(
            f"cannot write to the archive {folder}: {error.strerror}"
            + (f" ({error.filename})" if error.filename else "")
            + "; make room or make the folder writable for this user, then retry the job"
        ) from error
