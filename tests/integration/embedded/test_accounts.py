"""Root hands the server to another account; everybody else runs it as themselves."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from durable_jobs.embedded import BinariesMissing, PostgresCluster, binaries, datafolder
from durable_jobs.embedded.account import Account, server_account
from durable_jobs.embedded.leftovers import server_pid
from tests.integration.embedded.conftest import FAST

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs programs as another account")

USER_PROGRAM = """
import sys
from pathlib import Path
from durable_jobs.embedded import PostgresCluster
settings = {"fsync": "off", "shared_buffers": "16MB"}
with PostgresCluster(Path(sys.argv[1]) / "home", settings=settings) as cluster:
    cluster.create_database("work")
print("done")
"""


@pytest.fixture
def system_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands for the folder under /var/lib."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        for module in (binaries, datafolder):
            monkeypatch.setattr(module, "SYSTEM_FOLDER", Path(folder))
        yield Path(folder)


@as_root
def test_the_server_of_root_runs_as_an_unprivileged_account(cluster: PostgresCluster, home: Path) -> None:
    server = psutil.Process(server_pid((home / "data").resolve()) or 0)
    assert server.uids().effective == server_account().uid != 0


@as_root
def test_a_home_below_a_private_folder_keeps_its_data_elsewhere(tmp_path: Path, system_folder: Path) -> None:
    tmp_path.chmod(0o700)
    cluster = PostgresCluster(tmp_path / "home", settings=FAST)
    with cluster:
        data = (tmp_path / "home" / "data").resolve()
        assert data.is_relative_to(system_folder)
        assert tmp_path.stat().st_mode & 0o777 == 0o700
    with cluster:
        assert (tmp_path / "home" / "data").resolve() == data
    cluster.remove()
    assert not data.exists()


@as_root
def test_binaries_below_a_private_folder_are_copied_once(
    tmp_path: Path, system_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = binaries._installed_package()
    for name in (installed.name, f"{installed.name}.libs"):
        shutil.copytree(installed.parent / name, tmp_path / "private" / name)
    (tmp_path / "private").chmod(0o700)
    monkeypatch.setattr(binaries, "_installed_package", lambda: tmp_path / "private" / installed.name)
    account = server_account()
    copied = binaries.binaries_for(account)
    assert copied.is_relative_to(system_folder)
    assert subprocess.run([copied / "initdb", "--version"], check=True, cwd="/", **account.run_as())
    made = copied.stat().st_ino
    assert binaries.binaries_for(account).stat().st_ino == made
    assert len(list(system_folder.iterdir())) == 1


@as_root
def test_an_ordinary_user_runs_it_without_help(home: Path) -> None:
    other = server_account()
    if not other.can_enter(Path(sys.executable)) or not other.can_enter(Path(binaries.__file__).parent):
        pytest.skip("this checkout lies below a private folder")
    home.mkdir(mode=0o700)
    other.own(home)
    done = subprocess.run(
        [sys.executable, "-c", USER_PROGRAM, home],
        check=False,
        capture_output=True,
        text=True,
        cwd="/",
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        **other.run_as(),
    )
    assert done.stdout == "done\n", done.stderr


def test_missing_binaries_are_named(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(binaries, "PACKAGE", "no_such_package_of_binaries")
    with pytest.raises(BinariesMissing, match=r"no_such_package_of_binaries.*--database-url"):
        PostgresCluster(home, settings=FAST).start()


def test_who_can_enter_a_folder_follows_its_mode(tmp_path: Path) -> None:
    stranger = Account("stranger", 54_321, 54_321, is_self=False)
    with tempfile.TemporaryDirectory() as folder:
        assert not stranger.can_enter(Path(folder))
        Path(folder).chmod(0o711)
        assert stranger.can_enter(Path(folder))
