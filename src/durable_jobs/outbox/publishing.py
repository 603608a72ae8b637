"""Publishes the outbox: post, look some seconds later whether Prefect has it, and only then call it published.

A 204 of Prefect proves nothing: its server keeps what it accepted in memory for a while. So an event is
published when it was read back, and posted again only when it was looked for and not found. Nothing that
happens here touches a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol
from uuid import UUID

import structlog

from durable_jobs.errors import DurableJobsError
from durable_jobs.outbox.message import Message, barest, message_of
from durable_jobs.outbox.store import Awaited, EventOutbox, Posting

logger = structlog.get_logger(__name__)

AT_ONCE = 50
"""Events in one request; Prefect's filter answers with 50 at most."""
MAX_BYTES_AT_ONCE = 1_000_000
ON_THE_WAY = 500
"""Most events that are posted and not yet seen: Prefect keeps them in memory."""
SETTLED = timedelta(seconds=6)
"""Prefect writes what it accepted after five seconds at the latest, when it is not behind."""
LOST = timedelta(seconds=60)


class PrefectAway(DurableJobsError):
    """Prefect's API does not take or show events now; they wait in job_events."""

    exit_code = 4


class EventsRefused(DurableJobsError):
    """Prefect's API refuses what was posted."""


class EventsApi(Protocol):
    """The two calls of Prefect's API that the publisher needs."""

    async def post(self, documents: Sequence[dict[str, object]]) -> None:
        """Post events.

        Raises:
            PrefectAway: it does not answer, or not with sense; also when the login is refused.
            EventsRefused: it answers that the events are not valid.
        """
        ...

    async def stored(self, ids: Sequence[UUID], since: datetime, until: datetime) -> set[UUID]:
        """Return which of at most 50 events, that occurred in this time, Prefect has.

        Raises:
            PrefectAway: it does not answer, or not with sense.
        """
        ...


class Published(NamedTuple):
    """What a pass did."""

    posted: int = 0
    published: int = 0
    lost: int = 0
    away: str | None = None
    """Why Prefect took nothing, if so."""

    def plus(self, other: Published) -> Published:
        """Return both passes as one."""
        return Published(
            self.posted + other.posted,
            self.published + other.published,
            self.lost + other.lost,
            other.away or self.away,
        )


async def publish_pass(
    outbox: EventOutbox,
    api: EventsApi,
    *,
    settled: timedelta = SETTLED,
    lost: timedelta = LOST,
    now: datetime | None = None,
) -> Published:
    """Look for what was posted, then post what waits; at most 500 events are on the way at once.

    Raises:
        StoreUnavailable: the database does not answer. (Prefect away is told in the answer.)
    """
    awaited = await outbox.awaited_events(settled=timedelta(0), limit=ON_THE_WAY, now=now)
    done = Published()
    try:
        done = done.plus(await _look_for([a for a in awaited if a.waited >= settled], outbox, api, lost, now))
        room = ON_THE_WAY - len(awaited) + done.published
        if room > 0:
            done = done.plus(await _post_waiting(outbox, api, room, now))
    except PrefectAway as error:
        return done.plus(Published(away=str(error)))
    return done


async def _look_for(
    awaited: Sequence[Awaited], outbox: EventOutbox, api: EventsApi, lost: timedelta, now: datetime | None
) -> Published:
    done = Published()
    for some in _batches(awaited):
        first, last = min(a.occurred_at for a in some), max(a.occurred_at for a in some)
        found = await api.stored([a.event_id for a in some], first - _MARGIN, last + _MARGIN)
        missing = [
            Posting(a.event_id, a.posted_at) for a in some if a.event_id not in found and a.waited >= lost
        ]
        await outbox.settle_events(list(found), missing, now=now)
        done = done.plus(Published(published=len(found), lost=len(missing)))
    return done


_MARGIN = timedelta(seconds=1)


async def _post_waiting(outbox: EventOutbox, api: EventsApi, room: int, now: datetime | None) -> Published:
    posted = 0
    while posted < room:
        events = await outbox.take_events(min(room - posted, AT_ONCE), now=now)
        if not events:
            break
        # When this fails they stay taken: only a look will tell whether Prefect accepted them.
        for some in _within_bytes(message_of(event) for event in events):
            await _post_valid(some, api)
        posted += len(events)
    return Published(posted=posted)


async def _post_valid(messages: Sequence[Message], api: EventsApi) -> None:
    """Post; when Prefect refuses, find the event that it refuses and post what is left of it."""
    try:
        await api.post([message.document for message in messages])
    except EventsRefused as error:
        if len(messages) > 1:
            half = len(messages) // 2
            await _post_valid(messages[:half], api)
            await _post_valid(messages[half:], api)
            return
        refused = messages[0].event
        logger.warning("Prefect refuses an event", event_id=str(refused.event_id), error=str(error))
        bare = barest(refused).document
        if bare != messages[0].document:
            await _post_valid([Message(refused, bare, 0)], api)


def _within_bytes(messages: Iterable[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and size + message.size > MAX_BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.size
    if batch:
        yield batch


def _batches(awaited: Sequence[Awaited]) -> Iterator[Sequence[Awaited]]:
    for start in range(0, len(awaited), AT_ONCE):
        yield awaited[start : start + AT_ONCE]
