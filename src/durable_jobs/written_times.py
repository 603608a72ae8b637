"""Times and durations as people write them; what cannot be right is named with the way out."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter, ValidationError

from durable_jobs.errors import BadInput
from durable_jobs.stores.protocols import JobsOperator

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_ISO_DURATION = TypeAdapter(timedelta)


@dataclass(frozen=True, slots=True)
class Since:
    """A moment, or how long before now; now is the store's, whatever this machine's clock says."""

    at: datetime | None = None
    ago: timedelta | None = None

    async def moment(self, store: JobsOperator) -> datetime | None:
        """Return the moment.

        Raises:
            StoreUnavailable: it does not answer.
        """
        return self.at if self.ago is None else await store.now() - self.ago


def aware_time(option: str, text: str) -> datetime:
    """Read a moment in ISO 8601 with its time zone, and return it in UTC, as jobs show it.

    Raises:
        BadInput: it is no time, or it has no time zone.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInput(
            f"{option} {text!r} is not a time in ISO 8601, such as 2030-01-31T08:00:00+01:00"
        ) from error
    if moment.tzinfo is None:
        raise BadInput(f"{option} {text!r} has no time zone: add +01:00, or Z for UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise BadInput(f"{option} {text!r} is out of the range of times") from error


def duration(option: str, text: str) -> timedelta:
    """Read a duration: `90` (seconds), `2h`, `1d`, or ISO 8601 (`PT2H`, `P1D`).

    Raises:
        BadInput: it is no duration, or not longer than nothing.
    """
    length = _duration(text)
    if length is None or length <= timedelta(0):
        raise BadInput(f"{option} {text!r} is not a duration, such as 90s, 15m, 2h, 1d or P1DT12H")
    return length


def since(option: str, text: str) -> Since:
    """Read a moment: in ISO 8601 with its time zone, or a duration before now.

    Raises:
        BadInput: it is neither.
    """
    if text[:1].isdigit() and "-" in text:
        return Since(aware_time(option, text))
    try:
        ago = duration(option, text)
        # Far enough from the beginning of time, whatever the exact time is.
        _ = datetime.now(UTC) - ago
        return Since(ago=ago)
    except (BadInput, OverflowError) as error:
        raise BadInput(
            f"{option} {text!r} is neither a duration, such as 2h or P1D,"
            " nor a time with its time zone, such as 2030-01-31T08:00:00Z"
        ) from error


def _duration(text: str) -> timedelta | None:
    number, unit = (text[:-1], text[-1:]) if text[-1:] in _UNITS else (text, "s")
    try:
        return timedelta(seconds=float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        pass
    try:
        return _ISO_DURATION.validate_python(text, strict=False) if text[:1] == "P" else None
    except ValidationError:
        return None
