"""How a call is made and made again: the one place that decides what is repeated, and how long it waits.

Written as a generator that says what to do next and is given what came of it, so that a blocking and an
asyncio client share it. Invariant: nothing is repeated that could be done twice by it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import httpx

from durable_jobs.client.errors import ApiUnavailable, error_of

T = TypeVar("T")

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
JITTER = 0.25
ATTEMPT = timedelta(seconds=15)
"""How long one attempt may take when the call does not say otherwise; the API itself gives up after 10 s."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_NOT_DONE = 429
_AWAY = (502, 503, 504)


@dataclass(frozen=True)
class Call:
    """One request. It is `repeatable` when doing it twice is the same as doing it once."""

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = False
    attempt: timedelta = ATTEMPT
    tells_with: frozenset[int] = frozenset()
    """Statuses of errors that come with a document, which is the answer."""


@dataclass(frozen=True)
class Send:
    """Make the call; it may take so many seconds, and so many until there is a connection."""

    call: Call
    seconds: float
    connect: float


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Emit:
    """Hand one item of a stream to the caller."""

    item: Any


Step = Send | Pause | Emit
Flow = Generator[Step, Any, T]


@dataclass(frozen=True)
class Options:
    """How a client behaves."""

    patience: timedelta
    """How long a call is tried again, all in all."""


@dataclass(frozen=True)
class Until:
    """The moment, on the monotonic clock, until which a call is tried."""

    at: float

    @classmethod
    def after(cls, patience: timedelta) -> Until:
        """Return the moment after so long from now."""
        return cls(time.monotonic() + patience.total_seconds())

    @property
    def left(self) -> float:
        """Seconds left, never negative."""
        return max(self.at - time.monotonic(), 0.0)


def ask(call: Call, until: Until) -> Flow[httpx.Response]:
    """Make the call until it is answered, and return the answer.

    Raises:
        DurableJobsError: what the API refuses, as the same call beside the database would.
        ApiUnavailable: no answer in time.
    """
    pause = FIRST_PAUSE_S
    while True:
        wait = pause
        try:
            # A last attempt always has a second, so that no deadline makes every call fail.
            patient = min(call.attempt.total_seconds(), max(until.left, 1.0))
            # Patience is for an API that is away: one that was reached may finish what takes long.
            seconds = call.attempt.total_seconds() if call.attempt > ATTEMPT else patient
            response: httpx.Response = yield Send(call, seconds, connect=patient)
        except httpx.TransportError as error:
            if not (call.repeatable or isinstance(error, _NOT_SENT)) or until.left < wait:
                raise ApiUnavailable(_away(call, error)) from error
        else:
            if response.is_success or _tells(call, response):
                return response
            if not _may_repeat(call, response.status_code):
                raise error_of(response)
            wait = max(pause, _retry_after(response))
            if until.left < wait:
                raise error_of(response)
        # Never earlier than was asked for, and not all clients at once.
        yield Pause(wait * (1 + random.uniform(0, JITTER)))  # noqa: S311 -- no secret
        pause = min(pause * 2, LONGEST_PAUSE_S)


def _may_repeat(call: Call, status: int) -> bool:
    return status == _NOT_DONE or (status in _AWAY and call.repeatable)


def _tells(call: Call, response: httpx.Response) -> bool:
    is_document = response.headers.get("content-type", "").startswith("application/json")
    return is_document and response.status_code in call.tells_with


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _away(call: Call, error: httpx.TransportError) -> str:
    doubt = (
        ""
        if call.method == "GET" or isinstance(error, _NOT_SENT)
        else "; whether it was done is not known" + (", asking again does no harm" if call.repeatable else "")
    )
    return f"the API does not answer to {call.method} {call.path} ({type(error).__name__}: {error}){doubt}"
