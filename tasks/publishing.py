"""Publishes the outbox through Prefect's own client, which knows the address, the login and the certificates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import structlog
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError

from durable_jobs.errors import StoreUnavailable
from durable_jobs.outbox.publishing import (
    LOST,
    SETTLED,
    EventsRefused,
    PrefectAway,
    Published,
    publish_pass,
)
from durable_jobs.outbox.store import EventOutbox
from durable_jobs.tasks.beside import beside

logger = structlog.get_logger(__name__)

REQUEST_TIMEOUT = timedelta(seconds=10)
PAUSE = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(seconds=30)
_INVALID = (400, 413, 422)


class PrefectEvents:
    """Prefect's events endpoint; every call is bounded in time."""

    def __init__(self, client: PrefectClient) -> None:
        """Use a client that the caller opens."""
        self._client = client

    async def post(self, documents: Sequence[dict[str, Any]]) -> None:
        """Post events; see `EventsApi.post`."""
        await self._request("/events", list(documents))

    async def stored(self, ids: Sequence[UUID], since: datetime, until: datetime) -> set[UUID]:
        """Return which of these events Prefect has; see `EventsApi.stored`."""
        wanted = {
            "filter": {
                "id": {"id": [str(event_id) for event_id in ids]},
                "occurred": {"since": since.isoformat(), "until": until.isoformat()},
            },
            "limit": len(ids),
        }
        answer = await self._request("/events/filter", wanted)
        try:
            return {UUID(event["id"]) for event in answer.json()["events"]}
        except (ValueError, KeyError, TypeError) as error:
            raise PrefectAway(
                f"Prefect's answer to POST /events/filter is not understood: {error}"
            ) from error

    async def _request(self, path: Any, body: Any) -> httpx.Response:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT.total_seconds()):
                return await self._client.request("POST", path, json=body)
        except PrefectHTTPStatusError as error:
            status = error.response.status_code
            told = f"Prefect answers {status} to POST {path}"
            if status in _INVALID:
                raise EventsRefused(told) from error
            hint = "; check PREFECT_API_AUTH_STRING or PREFECT_API_KEY" if status in (401, 403) else ""
            raise PrefectAway(told + hint) from error
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            raise PrefectAway(f"Prefect does not answer: {type(error).__name__}") from error


async def publish_events(
    outbox: EventOutbox,
    *,
    settled: timedelta = SETTLED,
    lost: timedelta = LOST,
    now: datetime | None = None,
) -> Published:
    """Bring waiting events to Prefect and confirm earlier ones; what cannot be published waits.

    Args:
        outbox: the store.
        settled: how long after its posting an event is looked for in Prefect.
        lost: how long after its posting an event that is not found is posted again.
        now: the time, for tests.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    async with _events_api() as api:
        return await publish_pass(outbox, api, settled=settled, lost=lost, now=now)


async def keep_publishing(outbox: EventOutbox, *, pause: timedelta = PAUSE) -> None:
    """Publish until cancelled, slower while Prefect or the database is away."""
    wait = pause
    while True:
        try:
            backlog = await outbox.event_backlog()
            away = (await publish_events(outbox)).away if backlog.waiting or backlog.posted else None
        except StoreUnavailable as error:
            away = str(error)
        if away and wait == pause:
            logger.warning("events wait in job_events", why=away)
        wait = min(2 * wait, LONGEST_PAUSE) if away else pause
        await asyncio.sleep(wait.total_seconds())


@asynccontextmanager
async def publishing_meanwhile(outbox: EventOutbox) -> AsyncIterator[None]:
    """Publish beside the block; when it ends, what is left waits for the next shift."""
    async with beside(keep_publishing(outbox), "publishing"):
        yield


@asynccontextmanager
async def _events_api() -> AsyncIterator[PrefectEvents]:
    async with get_client() as client:
        yield PrefectEvents(client)
