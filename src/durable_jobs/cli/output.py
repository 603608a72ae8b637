"""What a command prints: answers on stdout, everything said to people on stderr.

A reader that went away (`durable-jobs list | head`) ends the command quietly.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import typer


def answer(text: str) -> None:
    """Print an answer on stdout, at once.

    Raises:
        typer.Exit: nobody reads any more.
    """
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer must not raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None


def answer_json(document: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document; without an indent it is one line."""
    answer(json.dumps(document, indent=indent, ensure_ascii=False))


def say(text: str) -> None:
    """Tell the person something, beside the answer."""
    lines = "\n".join(printable(line) for line in text.split("\n"))
    sys.stderr.write(f"{lines}\n")
    sys.stderr.flush()


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return aligned columns; nothing is cut, so that what is piped on is whole."""
    cells = [list(heads), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def printable(value: Any) -> str:
    """Return one line for a terminal: what other people's data holds must not steer it."""
    text = "" if value is None else str(value)
    return "".join(
        c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text
    )
