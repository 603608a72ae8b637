"""One run of the `postgres` program: started, awaited until it answers, stopped.

The server is a session of its own: neither Ctrl-C in a terminal nor the death of its starter reaches it. It
ends when it is told to.
"""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

import psycopg

from durable_jobs.embedded.account import Account
from durable_jobs.embedded.datafolder import CLEAN_ENVIRONMENT
from durable_jobs.embedded.errors import CannotStart
from durable_jobs.embedded.leftovers import FAST_SHUTDOWN, IMMEDIATE_SHUTDOWN

POLL_SECONDS = 0.05
LOG_BYTES_KEPT = 10_000_000
# What the server says when the remains of a killed one are still going; a second later it works.
PASSING_REASONS = ("lock file", "pre-existing shared memory", "could not bind", "Address already in use")


class Server:
    """A `postgres` process over one data folder."""

    def __init__(self, data: Path, log: Path, binaries: Path, account: Account) -> None:
        self.data = data
        self._log = log
        self._binaries = binaries
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def launch(self, settings: Mapping[str, str]) -> None:
        """Start the process with these configuration parameters; it does not answer yet."""
        options = [item for name, value in settings.items() for item in ("-c", f"{name}={value}")]
        descriptor = self._open_log()
        try:
            self._process = subprocess.Popen(
                [self._binaries / "postgres", "-D", self.data, *options],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                cwd="/",
                env=CLEAN_ENVIRONMENT,
                umask=0o077,
                start_new_session=True,
                **self._account.run_as(),
            )
        finally:
            os.close(descriptor)

    def wait_until_ready(self, url: str, timeout: timedelta, waiting: Callable[[str], None]) -> bool:
        """Wait until the server answers; return False if it ended for a reason that passes.

        Raises:
            CannotStart: it ended for another reason, or does not answer within `timeout`.
        """
        started = time.monotonic()
        told = False
        while time.monotonic() - started < timeout.total_seconds():
            if not self.is_running:
                return self._judge_end()
            if self._answers(url):
                return True
            if not told and time.monotonic() - started > 5:
                waiting(
                    "Postgres is not ready yet: after a crash it first replays its log, for minutes at worst"
                )
                told = True
            time.sleep(POLL_SECONDS)
        raise CannotStart(
            "starting Postgres",
            self.data,
            f"no answer within {timeout}",
            f"See {self._log}, then start again.",
        )

    def stop(self, patience: timedelta) -> None:
        """End the process: sessions are cut and data written out; after `patience`, at once."""
        if self._process is None:
            return
        for signal_number in (FAST_SHUTDOWN, IMMEDIATE_SHUTDOWN):
            if self.is_running:
                self._process.send_signal(signal_number)
            try:
                self._process.wait(patience.total_seconds())
                break
            except subprocess.TimeoutExpired:
                continue
        else:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _answers(self, url: str) -> bool:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            if "authentication failed" in str(error):
                raise CannotStart(
                    "logging in",
                    self.data,
                    "the password does not fit",
                    "Restore the file `password` of the home.",
                ) from error
            return False
        return True

    def _judge_end(self) -> bool:
        """Tell a passing end (False) from a real failure (an error with the server's own words)."""
        said = self._log.read_bytes()[self._log_start :].decode(errors="replace")
        if any(reason in said for reason in PASSING_REASONS):
            return False
        last_lines = "\n".join(said.strip().splitlines()[-8:])
        raise CannotStart("starting Postgres", self.data, last_lines, f"The whole log is {self._log}.")

    def _open_log(self) -> int:
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES_KEPT:
            self._log.rename(self._log.with_suffix(".log.1"))
        descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._log_start = os.fstat(descriptor).st_size
        return descriptor
