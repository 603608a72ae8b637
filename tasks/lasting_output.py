"""The output of a flow run outlives its reader.

A runner reads what its flow runs print through a pipe. When the runner is killed, the flow run goes on, and
its next line would meet a closed pipe: a job that logs would fail for no fault of its own. So a flow run prints
into a pipe of its own, and a thread passes that on for as long as somebody reads.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
import threading
from functools import cache

CHUNK = 65_536
STREAMS = (1, 2)


@cache
def outlive_reader() -> None:
    """Take over standard output and error of this process, once, if a runner reads them through a pipe."""
    if os.environ.get("PREFECT__FLOW_RUN_ID"):
        for number in STREAMS:
            if stat.S_ISFIFO(os.fstat(number).st_mode):
                _relay(number)


def _relay(number: int) -> None:
    outside = os.dup(number)
    reading, writing = os.pipe()
    os.dup2(writing, number)
    os.close(writing)
    thread = threading.Thread(target=_pass_on, args=(reading, outside), name=f"output-{number}", daemon=True)
    thread.start()
    atexit.register(_give_back, number, outside, thread)


def _pass_on(reading: int, outside: int) -> None:
    while chunk := os.read(reading, CHUNK):
        try:
            while chunk:
                chunk = chunk[os.write(outside, chunk) :]
        except BrokenPipeError:
            # Nobody reads any more; go on taking what is printed.
            continue


def _give_back(number: int, outside: int, thread: threading.Thread) -> None:
    """At the end of the process: let what was printed through, and print to the reader again."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(outside, number)
    thread.join(timeout=5)
