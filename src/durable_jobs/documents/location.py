"""Where a document is: an absolute path, or the same as a file URL.

Invariant: one place has one written form. It is the plain path, or the file URL for a name that is not UTF-8,
because such a name cannot be written as text.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit


def canonical_source(given: str | Path) -> str:
    """Return the one written form of `given`.

    Raises:
        ValueError: it is neither an absolute path nor a file URL of this machine.
    """
    path = path_of(given) if isinstance(given, str) else given
    if not path.is_absolute():
        raise ValueError(f"{os.fspath(path)!r} is not absolute; write the path from / on, or a file:/// URL")
    if b"\0" in os.fsencode(path):
        raise ValueError("a path cannot hold a NUL character")
    return str(path) if is_text(path) else path.as_uri()


def path_of(source: str) -> Path:
    """Return the path that `source`, a path or a file URL, stands for.

    Raises:
        ValueError: it is another kind of URL, or one of another machine.
    """
    if not source.lower().startswith("file:"):
        if "://" in source and not source.startswith("/"):
            raise ValueError(
                f"{source!r}: only files can be archived; give an absolute path or a file:/// URL"
            )
        return Path(source)
    url = urlsplit(source)
    if url.netloc.lower() not in ("", "localhost"):
        raise ValueError(f"{source!r} is on the machine {url.netloc!r}; a file:/// URL is of this machine")
    if url.query or url.fragment:
        raise ValueError(f"{source!r}: write ? as %3F and # as %23 in a file URL")
    return Path(os.fsdecode(unquote_to_bytes(url.path)))


def is_text(path: Path) -> bool:
    """Tell whether the path can be written as text; on disk a name is any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True
