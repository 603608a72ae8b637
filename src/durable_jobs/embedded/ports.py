"""TCP ports of 127.0.0.1: a free one, and one that is kept from start to start.

Free ports are taken below the range from which the kernel serves outgoing connections, so that a kept port
is rarely taken by chance at the next start.
"""

import random
import socket
from pathlib import Path

LOWEST, HIGHEST = 15_000, 30_000


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections that linger after a stop do not make the port taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """Return a port on which nobody listens now."""
    candidates = random.SystemRandom().sample(range(LOWEST, HIGHEST), 200)
    for port in candidates:
        if is_free(port):
            return port
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kept_port(file: Path) -> int:
    """Return the port noted in `file` while it is free, else a new free one, noted for the next time."""
    try:
        port = int(file.read_text())
    except (FileNotFoundError, ValueError):
        port = 0
    if 0 < port < 65_536 and is_free(port):
        return port
    port = free_port()
    file.write_text(f"{port}\n")
    return port
