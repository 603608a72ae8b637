"""What must survive a power cut: file contents and the folder entries that name them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


def sync_file(file: BinaryIO) -> None:
    """Return once the file's bytes are on disk; the next read comes from there where the system allows it."""
    file.flush()
    os.fsync(file.fileno())
    # Without this, reading back would only compare the kernel's memory with itself.
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def sync_folder(folder: Path) -> None:
    """Return once the names in `folder` are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make `folder` and its parents so that they survive; one that exists is left as it is."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=mode, exist_ok=True)
    sync_folder(folder.parent)
