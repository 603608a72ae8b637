"""The home folder: made so that the server's account can pass through, and held by one process at a time.

The lock is an advisory lock of the operating system on an open file: it goes with the process that holds
it, however that process ends, so a stale lock cannot exist.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from durable_jobs.embedded.account import Account
from durable_jobs.embedded.errors import HomeInUse, HomeNotWritable

LOCK_FILE = "lock"


def prepare_home(home: Path, account: Account) -> Path:
    """Create the home (or take an empty one) so that we can write and `account` can pass through.

    Passing through is all that the server's account gets: it cannot list the home, and secrets in it have
    mode 0600. A folder that already holds something else keeps its mode.

    Raises:
        HomeNotWritable: it cannot be created or written.
    """
    home = home.expanduser().absolute()
    mode = 0o700 if account.is_self else 0o711
    try:
        is_new = not home.exists() or not any(home.iterdir())
        home.mkdir(parents=True, exist_ok=True)
        if is_new:
            home.chmod(mode)
    except OSError as error:
        raise HomeNotWritable(home, error.strerror or str(error)) from error
    if not os.access(home, os.W_OK | os.X_OK):
        raise HomeNotWritable(home, "permission denied")
    return home


class HomeLock:
    """At most one living process holds a home.

    Raises (on `acquire`):
        HomeInUse: another process holds it.
        HomeNotWritable: the lock file cannot be written.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock, or say who has it."""
        if self._descriptor is not None:
            return
        try:
            descriptor = os.open(self.home / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HomeNotWritable(self.home, error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise HomeInUse(self.home, f"process {holder}" if holder else "another process") from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Let the next process have the home."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
