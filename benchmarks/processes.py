"""Each system runs in a process of its own and does what it is asked over a pipe, one thing at a time."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import os
import traceback
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

import psutil

from benchmarks.systems.base import System

ANSWER_S = 900.0


class SystemFailed(Exception):
    """A system did not do what it was asked; the message is what its process saw."""


class SystemProcess:
    """One system in its process."""

    def __init__(self, path: str, url: str, environment: Mapping[str, str], *, uvloop: bool = False) -> None:
        """Start the process; `path` is `module:Class`."""
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, path, url, dict(environment), uvloop), daemon=True
        )
        self._process.start()

    def ask(self, what: str, *args: Any) -> Any:
        """Call a method of the system and return what it returns.

        Raises:
            SystemFailed: it raised, or did not answer for a long time.
        """
        self._pipe.send((what, args))
        if not self._pipe.poll(ANSWER_S):
            raise SystemFailed(f"{what}: no answer within {ANSWER_S:g} s")
        worked, answer = self._pipe.recv()
        if not worked:
            raise SystemFailed(answer)
        return answer

    def cpu(self) -> float:
        """Return the processor time (s) that the process has used."""
        return sum(psutil.Process(self._process.pid).cpu_times()[:2])

    def stop(self) -> None:
        """End the process."""
        if self._process.is_alive():
            self._pipe.send(("", ()))
            self._process.join(10)
        self._process.kill()


def _serve(pipe: Connection, path: str, url: str, environment: dict[str, str], fast_loop: bool) -> None:
    os.environ.update(environment)
    if fast_loop:
        import uvloop  # only the systems whose own command uses it

        uvloop.run(_answer(pipe, path, url))
    else:
        asyncio.run(_answer(pipe, path, url))


async def _answer(pipe: Connection, path: str, url: str) -> None:
    loop = asyncio.get_running_loop()
    system: System | None = None
    while True:
        what, args = await loop.run_in_executor(None, pipe.recv)
        if not what:
            break
        try:
            if system is None:
                module, name = path.split(":")
                system = getattr(importlib.import_module(module), name)(url)
                await system.open()
            pipe.send((True, await getattr(system, what)(*args)))
        except Exception:  # noqa: BLE001 -- whatever it is, the asking process tells it
            pipe.send((False, traceback.format_exc()))
    if system is not None:
        await system.close()
