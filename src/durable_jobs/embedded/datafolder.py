"""The data folder of a cluster: where it lies, and its one-time creation by initdb.

A data folder appears whole or not at all: initdb works in a folder beside it, which is renamed at the end.
"""

import hashlib
import shutil
import subprocess
from pathlib import Path

from durable_jobs.embedded.account import Account
from durable_jobs.embedded.binaries import SYSTEM_FOLDER, major_version, make_enterable
from durable_jobs.embedded.errors import CannotStart, HomeNotWritable, WrongVersion
from durable_jobs.embedded.secretfile import write_secret

OWNER = "postgres"
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
INITDB_OPTIONS = (
    f"--username={OWNER}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    # The builtin provider sorts the same on every machine and after every upgrade of its C library.
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
)


def locate(home: Path, account: Account) -> Path:
    """Return the folder of the data (it may not exist yet).

    It is `data` in the home. Where the server's account cannot enter the home, because a parent folder is
    private, it lies under /var/lib instead and `data` in the home is a link to it.

    Raises:
        CannotStart: the link leads nowhere.
        HomeNotWritable: the data lie in a home that the server's account can no longer enter.
    """
    data = home / "data"
    if data.is_symlink():
        if not data.exists():
            raise CannotStart(
                "finding the data folder",
                data.readlink(),
                "it does not exist",
                f"Restore it, or remove {data}.",
            )
        return data.resolve()
    if account.can_enter(home):
        return data
    if data.exists():
        raise HomeNotWritable(home, f"the account {account.name} that runs Postgres cannot enter it")
    name = hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:16]
    return SYSTEM_FOLDER / "clusters" / name / "data"


def create(home: Path, data: Path, password: str, binaries: Path, account: Account, *, sync: bool) -> None:
    """Run initdb, unless the data folder exists.

    Raises:
        CannotStart: initdb failed.
        HomeNotWritable: the place of the data folder cannot be written.
        WrongVersion: the existing data belong to another major version.
    """
    if data.exists():
        _check_version(data, binaries)
        return
    try:
        _create(data, password, binaries, account, sync=sync)
        if data.parent != home:
            (home / "data").symlink_to(data)
    except OSError as error:
        raise HomeNotWritable(data.parent, str(error)) from error


def _check_version(data: Path, binaries: Path) -> None:
    found, expected = (data / "PG_VERSION").read_text().strip(), major_version(binaries)
    if found != expected:
        raise WrongVersion(data, found, expected)


def _create(data: Path, password: str, binaries: Path, account: Account, *, sync: bool) -> None:
    make_enterable(data.parent)
    unfinished = data.with_name("data.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(mode=0o700)
    account.own(unfinished)
    password_file = data.with_name("initdb-password")
    try:
        write_secret(password_file, password)
        account.own(password_file)
        _initdb(unfinished, password_file, binaries, account, sync=sync)
    finally:
        password_file.unlink(missing_ok=True)
    _admit_only_passwords(unfinished)
    unfinished.rename(data)


def _initdb(data: Path, password_file: Path, binaries: Path, account: Account, *, sync: bool) -> None:
    command: list[str | Path] = [
        binaries / "initdb",
        *INITDB_OPTIONS,
        f"--pwfile={password_file}",
        f"--pgdata={data}",
    ]
    if not sync:
        command.append("--no-sync")
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd="/",
        env=CLEAN_ENVIRONMENT,
        umask=0o077,
        **account.run_as(),
    )
    if done.returncode != 0:
        raise CannotStart("initdb", data, done.stderr or done.stdout, "Remove the cause and start again.")


def _admit_only_passwords(data: Path) -> None:
    (data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
