"""The list of what an archive holds: an entry for each path and content, with the job that archived it first.

Invariant: an entry is either completely there and on disk, or not at all, whoever is killed and however many
processes write at once; listing the same path and content again changes nothing.

SQLite rather than JSON Lines, because only a database can refuse the second of two equal entries. With its
rollback journal rather than its write-ahead log, because the log needs memory shared by all processes, which
a network folder does not offer, and entries are short enough for readers to wait.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from durable_jobs.documents.errors import ArchiveError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    entry_id    INTEGER PRIMARY KEY,
    source      TEXT NOT NULL,
    sha256      TEXT NOT NULL,
    size        INTEGER NOT NULL,
    stored_size INTEGER NOT NULL,
    media_type  TEXT NOT NULL,
    archived_at TEXT NOT NULL,
    archived_by TEXT NOT NULL,
    UNIQUE (source, sha256)
)
"""
_INSERT = """
INSERT INTO entries (source, sha256, size, stored_size, media_type, archived_at, archived_by)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (source, sha256) DO NOTHING
"""
_SELECT = """
SELECT source, sha256, size, stored_size, media_type, archived_at, archived_by, entry_id
FROM entries WHERE entry_id > ? ORDER BY entry_id LIMIT ?
"""
_TABLE_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'entries'"
_PAGE = 1000


class IndexUnavailable(ArchiveError):
    """The archive's index cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One archived document: where it was, what it is, when and by which job it was archived."""

    source: str
    sha256: str
    size: int
    stored_size: int
    media_type: str
    archived_at: datetime
    archived_by: str


class ArchiveIndex:
    """The index in one file, made when it is missing; its folder must exist.

    Args:
        path: the file.
        patience: how long to wait for other writers.
    """

    def __init__(self, path: Path, patience: timedelta = timedelta(seconds=30)) -> None:
        self.path = path
        self._patience = patience

    def add(self, entry: Entry) -> bool:
        """List `entry`; return whether it is new. It is on disk when this returns.

        Raises:
            IndexUnavailable: the file cannot be written, is damaged, or others kept it for too long.
        """
        with self._connected() as connection:
            # Immediate: the wait for other writers is at the start, where SQLite does wait.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_SCHEMA)
            added = connection.execute(_INSERT, _row(entry)).rowcount == 1
            connection.execute("COMMIT")
            return added

    def entries(self) -> Iterator[Entry]:
        """Yield all entries, oldest first; those added meanwhile may be among them.

        Raises:
            IndexUnavailable: the file cannot be read, or is damaged.
        """
        last = 0
        while page := self._page_after(last):
            yield from (_entry(row) for row in page)
            last = page[-1][-1]

    def _page_after(self, entry_id: int) -> list[tuple[str, str, int, int, str, str, str, int]]:
        # A page at a time, so that a slow reader does not hold up the writers.
        if not self.path.exists():
            return []
        with self._connected() as connection:
            # The very first writer may not have come as far as its table.
            if connection.execute(_TABLE_EXISTS).fetchone() is None:
                return []
            return connection.execute(_SELECT, (entry_id, _PAGE)).fetchall()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(
                sqlite3.connect(self.path, timeout=self._patience.total_seconds(), isolation_level=None)
            ) as connection:
                # With a rollback journal only EXTRA keeps the last commit through a power cut.
                connection.execute("PRAGMA synchronous = EXTRA")
                yield connection
        except sqlite3.Error as error:
            raise IndexUnavailable(
                f"the archive's index {self.path} cannot be used: {error}; it is a SQLite file,"
                " `sqlite3 FILE 'PRAGMA integrity_check'` tells whether it is damaged"
            ) from error


def _row(entry: Entry) -> tuple[str | int, ...]:
    return (
        entry.source,
        entry.sha256,
        entry.size,
        entry.stored_size,
        entry.media_type,
        entry.archived_at.astimezone(UTC).isoformat(),
        entry.archived_by,
    )


def _entry(row: tuple[str, str, int, int, str, str, str, int]) -> Entry:
    source, sha256, size, stored_size, media_type, archived_at, archived_by, _ = row
    return Entry(
        source, sha256, size, stored_size, media_type, datetime.fromisoformat(archived_at), archived_by
    )
