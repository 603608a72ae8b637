"""A Postgres cluster in a folder: `start()` gives a server with the folder's data, whatever happened before.

The home holds `data`, `password` (mode 0600), `port`, `postgres.log` and `lock`. The server listens on
127.0.0.1 only and admits passwords (scram) only. The lock is held from start to stop: two clusters never
share a home.
"""

import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote

import psycopg
from psycopg import sql

from durable_jobs.embedded import datafolder
from durable_jobs.embedded.account import Account, server_account
from durable_jobs.embedded.binaries import binaries_for
from durable_jobs.embedded.errors import CannotStart, HomeNotWritable, PortTaken
from durable_jobs.embedded.home import HomeLock, prepare_home
from durable_jobs.embedded.leftovers import clear_leftovers
from durable_jobs.embedded.ports import is_free, kept_port
from durable_jobs.embedded.secretfile import write_secret
from durable_jobs.embedded.server import Server

FIXED_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}
STOP_PATIENCE = timedelta(seconds=30)
RETRY_FOR = timedelta(seconds=30)


def _ignore(_: str) -> None: ...


class PostgresCluster:
    """A Postgres server over the data of one home folder.

    Args:
        home: folder of the cluster; created when missing.
        port: TCP port of 127.0.0.1; None picks a free one and keeps it from start to start.
        settings: configuration parameters of Postgres, for example `{"shared_buffers": "256MB"}`.
        start_timeout: how long a start may take, crash recovery included.
        report: called with a sentence for people when a step takes long.
    """

    def __init__(
        self,
        home: Path,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        start_timeout: timedelta = timedelta(minutes=15),
        report: Callable[[str], None] = _ignore,
    ) -> None:
        self.home = home.expanduser().absolute()
        self.port = port
        self._wanted_port = port
        self._settings = dict(settings or {})
        self._start_timeout = start_timeout
        self._report = report
        self._lock = HomeLock(self.home)
        self._server: Server | None = None
        self._password = ""

    @property
    def is_running(self) -> bool:
        """Whether the server process lives (it may have been killed from outside)."""
        return self._server is not None and self._server.is_running

    def start(self) -> None:
        """Start the server and return when it answers; nothing to do when it runs.

        Raises:
            HomeInUse: another process runs this home.
            HomeNotWritable, PortTaken, BinariesMissing, WrongVersion, CannotStart: as their names say.
        """
        if self.is_running:
            return
        account = server_account()
        prepare_home(self.home, account)
        self._lock.acquire()
        try:
            self._start(account)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server: sessions are cut, data written out. Nothing to do when it does not run."""
        if self._server is not None:
            self._server.stop(STOP_PATIENCE)
            self._server = None
        self._lock.release()

    def remove(self) -> None:
        """Stop the server and delete the home with all its data, wherever they lie."""
        self.stop()
        data = self.home / "data"
        if data.is_symlink():
            shutil.rmtree(data.resolve().parent, ignore_errors=True)
        shutil.rmtree(self.home, ignore_errors=True)

    def admin_url(self, database: str = "postgres") -> str:
        """Return the owner's URL (`postgresql://...`, a superuser with its password) for a database."""
        login = f"{datafolder.OWNER}:{self._password}"
        return f"postgresql://{login}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def create_database(self, name: str) -> None:
        """Create a database, unless it exists."""
        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                return
            try:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            except (psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
                return

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, account: Account) -> None:
        binaries = binaries_for(account)
        data = datafolder.locate(self.home, account)
        self._password = _kept_password(self.home / "password")
        sync = self._settings.get("fsync") != "off"
        datafolder.create(self.home, data, self._password, binaries, account, sync=sync)
        self._server = Server(data, self.home / "postgres.log", binaries, account)
        give_up = time.monotonic() + RETRY_FOR.total_seconds()
        while not self._try_start(self._server):
            if time.monotonic() > give_up:
                raise CannotStart(
                    "starting Postgres", data, "it gives up each time", f"See {self.home}/postgres.log."
                )
            time.sleep(0.5)

    def _try_start(self, server: Server) -> bool:
        clear_leftovers(server.data, STOP_PATIENCE)
        self.port = self._choose_port()
        server.launch({**FIXED_SETTINGS, **self._settings, "port": str(self.port)})
        return server.wait_until_ready(self.admin_url(), self._start_timeout, self._report)

    def _choose_port(self) -> int:
        if self._wanted_port is None:
            return kept_port(self.home / "port")
        if not is_free(self._wanted_port):
            raise PortTaken("Postgres", self._wanted_port, "another port for PostgresCluster")
        return self._wanted_port


def _kept_password(file: Path) -> str:
    """Return the owner's password from its file, which is made at the first start."""
    try:
        password = file.read_text().strip() if file.exists() else ""
        if not password:
            password = secrets.token_urlsafe(32)
            write_secret(file, password)
    except OSError as error:
        raise HomeNotWritable(file.parent, str(error)) from error
    return password
