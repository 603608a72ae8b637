"""Where documents may come from and go to.

Whoever may submit a job must not thereby read every file, and write into every folder, that the user who runs
the jobs can. Invariant: with folders given, links lead nowhere else; outside development they must be given.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from durable_jobs.documents.errors import FolderNotAllowed
from durable_jobs.documents.payload import ArchiveDocument
from durable_jobs.settings import Settings


def check_allowed(request: ArchiveDocument, settings: Settings) -> None:
    """Return if the settings allow this document to be read and this archive to be written.

    Raises:
        FolderNotAllowed: naming the setting.
    """
    open_to_all = settings.environment == "development"
    _check("source", request.path, "archive_sources", settings.archive_sources, open_to_all)
    _check("store", request.store, "archive_stores", settings.archive_stores, open_to_all)


def _check(field: str, path: Path, setting: str, folders: Sequence[Path], open_to_all: bool) -> None:
    if not folders and open_to_all:
        return
    real = Path(os.path.realpath(path))
    if any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
        return
    where = f"{field} {path}" if real == path else f"{field} {path} (which is {real})"
    allowed = ", ".join(map(str, folders)) or "no folder"
    raise FolderNotAllowed(
        f"{where}: DURABLE_JOBS_{setting.upper()} allows {allowed}; add the folder there if it is right"
    )
