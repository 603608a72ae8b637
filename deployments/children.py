"""A child process that is kept running: started in a session of its own, restarted when it dies.

What it writes goes to a log file, which is moved aside when it has grown large.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from durable_jobs.deployments.backoff import Backoff

LOG_BYTES_KEPT = 10_000_000


class Child:
    """One supervised program."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], log: Path, folder: Path
    ) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._environment = dict(environment)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._backoff = Backoff()

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, *arguments: str) -> None:
        """Start the program with further arguments for this start only."""
        self._move_large_log()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *arguments],
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._backoff.started()

    def revive(self, report: Callable[[str], None]) -> None:
        """Start the program again if it has died and its pause is over."""
        if self._process is None or self.is_running or not self._backoff.is_over:
            return
        report(f"{self.name} ended ({self.ending()}); starting it again. Its log: {self.log}")
        self.start()

    def ending(self) -> str:
        """Return how the process ended, in words."""
        code = self._process.poll() if self._process else None
        if code is None:
            return "it runs"
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def last_words(self, lines: int = 12) -> str:
        """Return the end of the log."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def forget(self) -> None:
        """Reap a process that was stopped, so that it is not restarted."""
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _move_large_log(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_KEPT:
            self.log.replace(self.log.with_suffix(".log.1"))
