"""PgBouncer in transaction mode before a database, with so few connections that callers share them."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy.engine import make_url

from durable_jobs.embedded.ports import free_port

_CONFIG = """
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = plain
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
"""


def program() -> str | None:
    """Return where PgBouncer is, or None."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def before(url: str) -> Iterator[str]:
    """Run PgBouncer, and give the URL that leads through it."""
    target = make_url(url)
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        config = folder / "pgbouncer.ini"
        config.write_text(_CONFIG.format(host=target.host, port=target.port, listen=port, folder=folder))
        (folder / "users").write_text(f'"{target.username}" "{target.password}"\n')
        # It refuses to run as root.
        account = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        for path in (folder, config, folder / "users"):
            if account is not None:
                os.chown(path, account.pw_uid, account.pw_gid)
        process = subprocess.Popen(
            [program() or "pgbouncer", "-q", str(config)], user=account.pw_uid if account else None
        )
        try:
            _wait_for(port)
            yield target.set(port=port).render_as_string(hide_password=False)
        finally:
            process.terminate()
            process.wait()


def _wait_for(port: int) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise RuntimeError("PgBouncer does not answer")
