"""The operating system account that runs the Postgres server.

Postgres refuses to run as root. Root therefore hands the server to another account; everybody else runs
it as themselves. Programs are started from argument lists under that account, so no shell ever sees a path.
"""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

UNPRIVILEGED_ACCOUNTS = ("postgres", "nobody")


class RunAs(TypedDict, total=False):
    """The arguments of `subprocess` that change the account."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True)
class Account:
    """Who runs the server, and whether that is somebody other than us."""

    name: str
    uid: int
    gid: int
    is_self: bool

    def run_as(self) -> RunAs:
        """Return the `subprocess` arguments that start a program under this account."""
        if self.is_self:
            return RunAs()
        return RunAs(user=self.uid, group=self.gid, extra_groups=[])

    def own(self, path: Path) -> None:
        """Give one file or folder to this account."""
        if not self.is_self:
            os.chown(path, self.uid, self.gid)

    def can_enter(self, folder: Path) -> bool:
        """Tell whether this account can walk from the root folder into `folder` (by mode bits)."""
        folder = folder.resolve()
        return all(self._can_traverse(step) for step in (folder, *folder.parents))

    def _can_traverse(self, folder: Path) -> bool:
        try:
            status = folder.stat()
        except PermissionError:
            return False
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        if status.st_gid == self.gid:
            return bool(status.st_mode & 0o010)
        return bool(status.st_mode & 0o001)


def server_account() -> Account:
    """Return the account for the server: ourselves, or for root `postgres` if it exists, else `nobody`."""
    if os.geteuid() != 0:
        return Account(str(os.geteuid()), os.geteuid(), os.getegid(), is_self=True)
    for name in UNPRIVILEGED_ACCOUNTS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(name, entry.pw_uid, entry.pw_gid, is_self=False)
    return Account("nobody", 65534, 65534, is_self=False)
