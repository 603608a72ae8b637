"""While a shift works, Python's garbage collection looks at the shift's objects only.

The modules of a program and of Prefect are some hundred thousand objects that live as long as it does. A full
collection walks all of them, again and again while jobs come and go: a fifth to a third of a shift's processor
time. Behind the block everything is as before.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def objects_aside() -> Iterator[None]:
    """Set what exists aside from collections, unless the program has done so itself."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
