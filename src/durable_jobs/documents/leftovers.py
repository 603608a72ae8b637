"""Files of writers that died: a writer holds a lock on its file, and the kernel drops it at death.

Invariant: the file of a living writer is never removed, whatever its age; no clock and no process id is
consulted, so a slow writer is safe and a reused id fools nobody.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from pathlib import Path


def create_locked(folder: Path) -> tuple[Path, int]:
    """Create an empty file of a new name in `folder`, locked until its descriptor is closed.

    Raises:
        OSError: the folder cannot be written to.
    """
    while True:
        path = folder / uuid.uuid4().hex
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            # A sweeper that comes between these two lines takes the file for a dead writer's.
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink > 0:
                return path, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def sweep(folder: Path) -> int:
    """Remove the files in `folder` whose writer is dead; return how many."""
    removed = 0
    for path in list(folder.iterdir()):
        # Its writer may finish it, another sweeper remove it, at any moment; and what cannot be removed
        # (another user's, a folder) is no reason to fail the document that is about to be written.
        with contextlib.suppress(OSError):
            removed += _remove_if_dead(path)
    return removed


def _remove_if_dead(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
