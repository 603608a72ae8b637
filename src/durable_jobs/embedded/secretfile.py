"""Files that only their owner can read, written whole or not at all."""

import os
from pathlib import Path


def write_secret(file: Path, text: str) -> None:
    """Write `text` and a newline to a file of mode 0600, replacing what was there."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(f"{text}\n")
        stream.flush()
        os.fsync(stream.fileno())
    unfinished.replace(file)
