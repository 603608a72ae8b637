"""Host names become addresses in a process of their own.

The C library's resolver can be waited for but not stopped: in a thread, a name server that is silent
would leave the thread behind. A process can be killed, so every look-up ends when its time is over and
leaves nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import sys
from collections.abc import Sequence
from contextlib import suppress

from durable_jobs.redis_health.deadline import Deadline
from durable_jobs.redis_health.trouble import Trouble

_PROGRAM = """
import json, socket, sys
try:
    found = socket.getaddrinfo(sys.argv[1], None, type=socket.SOCK_STREAM)
except (OSError, UnicodeError) as error:
    sys.exit(str(error))
print(json.dumps(list(dict.fromkeys(item[4][0] for item in found))))
"""
# -I and -S: no site packages, no environment; the look-up starts in some 20 ms.
LOOKUP_COMMAND = (sys.executable, "-I", "-S", "-c", _PROGRAM)


async def look_up(host: str, deadline: Deadline, *, command: Sequence[str] = LOOKUP_COMMAND) -> list[str]:
    """Addresses of a host, in the order in which the system prefers them.

    Raises:
        Trouble: `unresolved`, when there is no such name or no answer in time.
    """
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    process = await _start(command, host)
    try:
        async with deadline.limit():
            output, errors = await process.communicate()
    except TimeoutError:
        raise Trouble("unresolved", f"no name server answered for {host} within {deadline}") from None
    finally:
        await _end(process)
    if process.returncode != 0:
        why = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise Trouble("unresolved", f"the host name {host} has no address ({''.join(why)})")
    return [str(address) for address in json.loads(output)]


async def _start(command: Sequence[str], host: str) -> asyncio.subprocess.Process:
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        return await asyncio.create_subprocess_exec(*command, host, stdin=null, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise Trouble("local", f"this process could not look up {host} ({error.strerror})") from error


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
