"""The two clients: the same operations, over a blocking and over an asyncio connection."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import cached_property
from importlib.metadata import version
from typing import Any, Self

import httpx
from pydantic import SecretStr

from durable_jobs.api.models import ListedJob
from durable_jobs.client import operations as does
from durable_jobs.client.asking import Flow, Options, Send
from durable_jobs.client.binding import Next, Operation, Stream, adrive, drive
from durable_jobs.client.waiting import wait as wait_for_end
from durable_jobs.errors import BadInput

URL_VARIABLE = "DURABLE_JOBS_API_URL"
TOKEN_VARIABLE = "DURABLE_JOBS_TOKEN"  # noqa: S105 -- the name of a variable
PATIENCE = timedelta(seconds=30)


class _Client:
    """What both clients are: an address, a token, and what they do."""

    submit = Operation(does.submit)
    get = Operation(does.get)
    status = Operation(does.status)
    chain = Operation(does.chain)
    wait = Operation(wait_for_end)
    list_jobs = Operation(does.list_jobs)
    failed = Operation(does.failed)
    each_job = Stream(does.each_job, ListedJob)
    each_failed = Stream(does.each_failed, ListedJob)
    retry = Operation(does.retry)
    cancel = Operation(does.cancel)
    resubmit = Operation(does.resubmit)
    pause = Operation(does.pause)
    resume = Operation(does.resume)
    stats = Operation(does.stats)
    config = Operation(does.config)
    workers = Operation(does.workers)
    redis = Operation(does.redis)
    purgeable = Operation(does.purgeable)
    purge = Operation(does.purge)

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        patience: timedelta = PATIENCE,
        verify: ssl.SSLContext | bool = True,
    ) -> None:
        """Prepare a client; nothing is connected yet.

        Args:
            url: address of the API, such as `https://jobs.example.org`.
            token: the bearer token; an API for development on this machine needs none.
            patience: how long a call is tried again when the API is away or asks to come later.
            verify: an SSL context of your own for https.

        Raises:
            BadInput: the URL is not one of http or https, or the token can be none.
        """
        self.options = Options(patience)
        self._url = _checked(url)
        self._token = None if token is None else SecretStr(_good(token))
        self._verify = verify

    @classmethod
    def from_environment(cls, **options: Any) -> Self:
        """Return a client of the API that DURABLE_JOBS_API_URL and DURABLE_JOBS_TOKEN name.

        Raises:
            BadInput: DURABLE_JOBS_API_URL is not set.
        """
        url = os.environ.get(URL_VARIABLE)
        if not url:
            raise BadInput(
                f"{URL_VARIABLE} is not set: source the connection.env of `durable-jobs up`,"
                " or set it to the address of the API"
            )
        return cls(url, os.environ.get(TOKEN_VARIABLE) or None, **options)

    def __repr__(self) -> str:
        """Show the address, never the token or a password."""
        return f"{type(self).__name__}({str(self._url.copy_with(userinfo=b''))!r})"

    def _settings(self) -> dict[str, Any]:
        headers = {"User-Agent": f"durable-jobs/{version('durable-jobs')}", "Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        return {"base_url": self._url, "headers": headers, "verify": self._verify}


class JobsClient(_Client):
    """A blocking client; use it with `with`, or close it. Threads may share it."""

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(**self._settings())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, flow: Flow[Any]) -> Any:
        """Do what a description says, and return its result."""
        at = Next(flow)
        for _ in drive(at, self._send):
            pass
        return at.result

    def stream(self, flow: Flow[Any]) -> Iterator[Any]:
        """Do what a description says, and give its items."""
        return drive(Next(flow), self._send)

    def _send(self, step: Send) -> httpx.Response:
        return self._http.request(**_request(step))


class AsyncJobsClient(_Client):
    """An asyncio client; use it with `async with`, or close it with `aclose`."""

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._settings())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, flow: Flow[Any]) -> Any:
        """Do what a description says, and return its result."""
        at = Next(flow)
        async for _ in adrive(at, self._send):
            pass
        return at.result

    def stream(self, flow: Flow[Any]) -> AsyncIterator[Any]:
        """Do what a description says, and give its items."""
        return adrive(Next(flow), self._send)

    async def _send(self, step: Send) -> httpx.Response:
        return await self._http.request(**_request(step))


def _request(step: Send) -> dict[str, Any]:
    call = step.call
    return {
        "method": call.method,
        "url": call.path,
        "params": list(call.params),
        "json": call.json,
        "headers": dict(call.headers),
        "timeout": httpx.Timeout(step.seconds, connect=step.connect, pool=step.connect),
    }


def _good(token: str) -> str:
    # What a header cannot hold would be told, with the token, by the error of whoever sends it.
    if not token or not token.isascii() or not token.isprintable() or token != token.strip():
        raise BadInput(
            f"the token ({TOKEN_VARIABLE}) has {len(token)} characters, and a token has printable ASCII characters"
            " only, without a space or a line end around it; give it as `durable-jobs token` prints it"
        )
    return token


def _checked(url: str) -> httpx.URL:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadInput(f"the address of the API cannot be read: {error}") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadInput(
            f"the address of the API is {str(parsed.copy_with(userinfo=b''))!r};"
            " it must begin with http:// or https:// and name a host"
        )
    return parsed
