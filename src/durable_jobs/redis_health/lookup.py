"""Host names become addresses in a process of their own.

The C library's resolver can be waited for but not stopped: in a thread, a name server that is silent
would leave the thread behind. A process can be killed, so every look-up ends when its time is over and
leaves nothing. Look-ups of one name at one time share a process: the probes of a target all need it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from weakref import WeakKeyDictionary

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


_going_on: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Task[list[str]]]] = (
    WeakKeyDictionary()
)


async def look_up(host: str, deadline: Deadline) -> list[str]:
    """Addresses of a host, in the order in which the system prefers them.

    Raises:
        Trouble: `unresolved`, when there is no such name or no answer in time.
    """
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    shared = _going_on.setdefault(asyncio.get_running_loop(), {})
    task = shared.get(host)
    if task is None:
        task = shared[host] = asyncio.create_task(ask_the_system(host, deadline))
        task.add_done_callback(lambda done: _forget(shared, host, done))
    try:
        async with deadline.limit():
            return await asyncio.shield(task)
    except TimeoutError:
        raise _no_answer(host, deadline) from None


def _forget(shared: dict[str, asyncio.Task[list[str]]], host: str, done: asyncio.Task[list[str]]) -> None:
    del shared[host]
    if not done.cancelled():
        done.exception()  # whoever waited has it; nobody may have


def _no_answer(host: str, deadline: Deadline) -> Trouble:
    return Trouble("unresolved", f"no name server answered for {host} within {deadline}")


async def ask_the_system(
    host: str, deadline: Deadline, *, command: Sequence[str] = LOOKUP_COMMAND
) -> list[str]:
    """Look a name up in a process of its own, which ends with the deadline.

    Raises:
        Trouble: `unresolved`, when there is no such name or no answer in time.
    """
    process = await _start(command, host)
    try:
        async with deadline.limit():
            output, errors = await process.communicate()
    except TimeoutError:
        raise _no_answer(host, deadline) from None
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
