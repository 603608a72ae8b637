"""Reads requests from an argument, a file or stdin: one document, or JSON Lines.

They are JSON Lines when the first line is a whole JSON value and more lines follow. Lines are read
as they are needed, so a file may be of any size. Numbers of lines count from 1, empty ones included.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from durable_jobs.errors import BadInput


class Line(NamedTuple):
    """One request of many, and where it stands."""

    number: int
    text: str
    bytes_read: int


class Requests(NamedTuple):
    """What there is to submit: one document, or lines."""

    document: str | None
    lines: Iterator[Line]
    total_bytes: int | None


@contextmanager
def open_requests(argument: str | None, file: Path | None, from_line: int | None) -> Iterator[Requests]:
    """Open where the requests are; without any, the one request is an empty object.

    Raises:
        BadInput: two sources at once, or one that cannot be read.
    """
    if argument is not None and file is not None:
        raise BadInput(f"there are two requests: the argument {argument[:40]!r} and --file {file}; give one")
    if file is not None and str(file) != "-":
        try:
            with file.open("rb") as stream:
                yield _requests(stream, from_line, file.stat().st_size if file.is_file() else None)
        except OSError as error:
            raise BadInput(f"--file {file} cannot be read: {error.strerror}") from error
    elif argument == "-" or file is not None:
        yield _requests(sys.stdin.buffer, from_line, None)
    else:
        text = "{}" if argument is None else argument
        yield _requests(BytesIO(text.encode()), from_line, None)


def _requests(stream: BinaryIO, from_line: int | None, total: int | None) -> Requests:
    lines = _lines(stream)
    if from_line is not None:
        return Requests(None, (line for line in lines if line.number >= from_line and line.text), total)
    filled = (line for line in lines if line.text)
    first = next(filled, None)
    if first is None:
        raise BadInput("the request is empty; a request without any fields is {}")
    if not _is_json(first.text):
        return Requests("\n".join([first.text, *(line.text for line in lines)]), iter(()), total)
    second = next(filled, None)
    if second is None:
        return Requests(first.text, iter(()), total)
    return Requests(None, chain([first, second], filled), total)


def _lines(stream: BinaryIO) -> Iterator[Line]:
    bytes_read = 0
    for number, line in enumerate(stream, 1):
        bytes_read += len(line)
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadInput(
                f"line {number}: it is not UTF-8 (byte {error.start + 1} is {line[error.start]:#04x})"
            ) from error
        yield Line(number, text.strip(" \t\r\n"), bytes_read)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
