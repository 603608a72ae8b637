"""What a check found: ok, a warning, a failure, or that it could not be told; with the way out."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class Status(StrEnum):
    """How a check came out, from best to worst."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAILED = "failed"


class Finding(NamedTuple):
    """The answer to one question; anything but ok says what to do."""

    name: str
    status: Status
    message: str
    way_out: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as `check --json` shows it."""
        return {
            "name": self.name,
            "status": str(self.status),
            "message": self.message,
            "wayOut": self.way_out,
        }


def ok(name: str, message: str) -> Finding:
    """Return that all is well."""
    return Finding(name, Status.OK, message)


def warning(name: str, message: str, way_out: str) -> Finding:
    """Return that it works, and will not for ever."""
    return Finding(name, Status.WARNING, message, way_out)


def failed(name: str, message: str, way_out: str) -> Finding:
    """Return that it does not work."""
    return Finding(name, Status.FAILED, message, way_out)


def unknown(name: str, message: str, way_out: str) -> Finding:
    """Return that it could not be told, and why."""
    return Finding(name, Status.UNKNOWN, message, way_out)


def worst(findings: list[Finding]) -> Status:
    """Return the worst status of all."""
    order = list(Status)
    return max((finding.status for finding in findings), key=order.index, default=Status.OK)
