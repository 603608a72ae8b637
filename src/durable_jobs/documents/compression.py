"""Objects are one zstandard frame: written while the sha256 is computed, read back in bounded memory.

Invariant: `decompressed` yields exactly what was written or raises; that the bytes are the right ones is for
the caller's sha256 to say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

CHUNK_BYTES = 256 * 1024


class HashingCompressor:
    """Takes a document's bytes; a zstandard frame goes to `file`, sha256 and size are known at any time."""

    def __init__(self, file: BinaryIO) -> None:
        self._hash = hashlib.sha256()
        # The frame's own checksum lets plain `zstd -t` check an object without durable-jobs.
        compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self._frame = compressor.stream_writer(file, closefd=False)
        self.size = 0

    def write(self, chunk: bytes) -> None:
        """Take the next bytes of the document."""
        self._hash.update(chunk)
        self._frame.write(chunk)
        self.size += len(chunk)

    def end(self) -> None:
        """Complete the frame; nothing can be written after it."""
        self._frame.flush(zstandard.FLUSH_FRAME)

    @property
    def sha256(self) -> str:
        """Digest of what was written so far."""
        return self._hash.hexdigest()


def decompressed(file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes in `file`'s frame, in chunks of at most `CHUNK_BYTES`.

    Raises:
        zstandard.ZstdError: the frame is damaged, or something follows it.
    """
    # Reading across frames makes bytes appended to an object an error; they would be ignored otherwise.
    with zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk
