"""The temporary folder of a demo: made for it, gone after it, and swept up later if the demo was killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from durable_jobs.deployments import marked
from durable_jobs.embedded import HomeInUse, HomeLock, HomeNotWritable, PostgresCluster
from durable_jobs.embedded.leftovers import clear_leftovers

PREFIX = "durable-jobs-demo-"
HOME = "home"


@contextmanager
def demo_folder() -> Iterator[Path]:
    """Make a folder that the account of the Postgres server can pass through, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        _remove(folder)


def sweep_killed_demos() -> int:
    """Stop and remove what demos of this user left behind when they were killed; return how many."""
    found = [folder for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*") if _is_abandoned(folder)]
    for folder in found:
        marked.stop_all(folder / HOME, timedelta(seconds=5), lambda: False)
        _stop_postgres(folder / HOME / "postgres" / "data")
        _remove(folder)
    return len(found)


def _is_abandoned(folder: Path) -> bool:
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        return False
    try:
        with HomeLock(folder / HOME):
            return True
    except (HomeInUse, HomeNotWritable):
        # In use, or so young that its home is not made yet.
        return False


def _stop_postgres(data: Path) -> None:
    if data.exists():
        clear_leftovers(data.resolve(), timedelta(seconds=10))


def _remove(folder: Path) -> None:
    PostgresCluster(folder / HOME / "postgres").remove()
    shutil.rmtree(folder, ignore_errors=True)
