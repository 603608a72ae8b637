"""Documents for the demo and the tests: most can be archived, some fail, each for a reason that happens.

Every path makes one job: `{"source": str(path), "store": ...}`, nothing else is needed, for the default limit
is what the document over the limit is over.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from durable_jobs.documents.payload import DEFAULT_MAX_BYTES
from durable_jobs.documents.sample_kinds import KINDS


def write_samples(folder: Path, count: int = 40) -> list[Path]:
    """Make `count` documents that can be archived, the last a copy of the first, and those that cannot.

    Writing into the same folder again gives the same files.

    Returns:
        All paths, the failing ones spread among the others.

    Raises:
        OSError: the folder cannot be written to.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_documents(folder, count)
    for position, (name, make) in enumerate(_FAILING):
        path = folder / name
        _clear(path)
        make(path)
        paths.insert(min(len(paths), 3 + 6 * position), path)
    return paths


def write_documents(folder: Path, count: int) -> list[Path]:
    """Make `count` documents of all kinds in `folder`, which exists; the last is a copy of the first."""
    paths = []
    for number in range(count):
        name, make = KINDS[number % len(KINDS)]
        path = folder / name.format(f"{number:03}")
        path.write_bytes(make(number))
        paths.append(path)
    if count > 1:
        paths[-1].unlink()
        paths[-1] = folder / f"copy-of-{paths[0].name}"
        paths[-1].write_bytes(paths[0].read_bytes())
    return paths


def write_large(folder: Path, count: int = 3) -> list[Path]:
    """Make documents just under the limit, each of which takes a moment and no room on disk."""
    paths = [folder / f"disk-image-{number}.img" for number in range(count)]
    for number, path in enumerate(paths):
        with path.open("wb") as file:
            file.truncate(DEFAULT_MAX_BYTES - 1)
            file.seek(0, os.SEEK_END)
            file.write(bytes([number]))
    return paths


def _over_the_limit(path: Path) -> None:
    # A hole of this size costs no room on disk, and its size is all that the job looks at.
    with path.open("wb") as file:
        file.truncate(DEFAULT_MAX_BYTES + 1)


def _deleted(path: Path) -> None:
    path.write_text("gone before its job runs")
    path.unlink()


def _link_to_nothing(path: Path) -> None:
    path.symlink_to(path.with_name("archived-by-hand.txt"))


def _unreadable(path: Path) -> None:
    if os.geteuid() != 0:
        path.write_text("for the board's eyes only")
        path.chmod(0)
    else:
        # Root reads everything, except through a link that leads to itself.
        path.symlink_to(path)


_FAILING: tuple[tuple[str, Callable[[Path], None]], ...] = (
    ("backup-of-everything.tar", _over_the_limit),
    ("deleted-meanwhile.txt", _deleted),
    ("contracts.pdf", Path.mkdir),
    ("link-to-nothing.txt", _link_to_nothing),
    ("scanner.pipe", os.mkfifo),
    ("board-only.txt", _unreadable),
)


def _clear(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
