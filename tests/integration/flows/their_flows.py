"""Flows of somebody who knows nothing of durable jobs: the first run of each goes wrong, the next does not."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from prefect import flow


def _is_first(folder: str, name: str) -> bool:
    marker = Path(folder) / name
    first = not marker.exists()
    marker.touch()
    return first


@flow(name="fails")
def fails(folder: str, word: str = "") -> None:
    if _is_first(folder, "fails"):
        raise ValueError(f"the password {word} is wrong")


@flow(name="crashes")
def crashes(folder: str) -> None:
    if _is_first(folder, "crashes"):
        os.kill(os.getpid(), signal.SIGKILL)


@flow(name="hangs")
def hangs(folder: str) -> None:
    if _is_first(folder, "hangs"):
        time.sleep(3600)


@flow(name="never-works")
def never_works() -> None:
    raise ValueError("no")


@flow(name="takes-a-number")
def takes_a_number(n: int = 1) -> int:
    return n
