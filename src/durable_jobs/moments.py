"""A moment is shown in UTC, whatever time zone the session of the database has, and says so by a Z."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import PlainSerializer


def in_utc(moment: datetime) -> datetime:
    """Return the same moment in UTC."""
    return moment.astimezone(UTC)


def for_people(moment: datetime) -> str:
    """Return a moment to the second, such as `2030-01-31 08:00:00Z`."""
    return f"{in_utc(moment):%Y-%m-%d %H:%M:%SZ}"


def for_programs(moment: datetime) -> str:
    """Return a moment in ISO 8601, such as `2030-01-31T08:00:00.123456Z`."""
    return in_utc(moment).isoformat().replace("+00:00", "Z")


Moment = Annotated[datetime, PlainSerializer(in_utc, return_type=datetime, when_used="json")]
"""A datetime that is written as JSON in UTC."""
