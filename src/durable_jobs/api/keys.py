"""The keys that a token may be signed with: one secret, or a JWKS from a file or a URL.

Only keys that fit the one configured algorithm count; a JWKS is read again when a token names a key that
is not known, and never more often than every half minute for it. While its URL is away, the keys stay.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import httpx
import jwt
import structlog
from jwt.exceptions import PyJWKError

from durable_jobs.errors import InvalidSettings, StoreUnavailable

logger = structlog.get_logger(__name__)

LIFETIME = timedelta(minutes=10)
PAUSE = timedelta(seconds=30)
TIMEOUT_S = 5
MOST_BYTES = 1_000_000
KEY_TYPES = {"RS256": "RSA", "ES256": "EC"}

Keys = Mapping[str | None, jwt.PyJWK]


class UnknownKey(Exception):
    """No key of this id signs tokens here."""


class KeySource(Protocol):
    """Gives the key for a token."""

    async def key(self, key_id: str | None) -> Any:
        """Return the key.

        Raises:
            UnknownKey: there is none with this id.
            StoreUnavailable: the keys cannot be had now.
        """
        ...


class OneSecret:
    """The same secret for every token."""

    def __init__(self, secret: str) -> None:
        """Use the secret."""
        self._secret = secret.encode()

    async def key(self, key_id: str | None) -> bytes:  # noqa: ARG002 -- there is only one
        """Return the secret."""
        return self._secret


class Jwks:
    """The keys of a JWKS, read when they are needed."""

    def __init__(self, place: str, algorithm: str) -> None:
        """Name a file or a URL; nothing is read yet."""
        self._place, self._algorithm = place, algorithm
        self._keys: Keys = {}
        self._read_at: float | None = None
        self._lock = asyncio.Lock()

    async def key(self, key_id: str | None) -> jwt.PyJWK:
        """Return the key with this id; without one, the only key."""
        if self._is_older_than(LIFETIME):
            await self._refresh(LIFETIME)
        found = self._found(key_id)
        if found is None and self._is_older_than(PAUSE):
            await self._refresh(PAUSE)
            found = self._found(key_id)
        if found is None:
            raise UnknownKey("no key of the JWKS has the id that the token names")
        return found

    def _found(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _is_older_than(self, age: timedelta) -> bool:
        return self._read_at is None or time.monotonic() - self._read_at > age.total_seconds()

    async def _refresh(self, age: timedelta) -> None:
        async with self._lock:
            # Somebody else may have read them while this one waited.
            if not self._is_older_than(age):
                return
            try:
                self._keys = keys_of(await self._read(), self._algorithm)
            except (httpx.HTTPError, OSError, ValueError) as error:
                logger.error(
                    "the JWKS cannot be read", place=self._place, error=f"{type(error).__name__}: {error}"
                )
                if not self._keys:
                    raise StoreUnavailable("the keys that sign tokens cannot be read now") from error
            self._read_at = time.monotonic()

    async def _read(self) -> bytes:
        if "://" not in self._place:
            return await asyncio.to_thread(Path(self._place).read_bytes)
        async with httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False) as client:
            answer = await client.get(self._place)
            answer.raise_for_status()
            if len(answer.content) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
            return answer.content


def keys_of(text: bytes, algorithm: str) -> Keys:
    """Return the keys of a JWKS that fit the algorithm; a symmetric key never does.

    Raises:
        ValueError: it is no JWKS, or none of its keys fits.
    """
    document = json.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError('it is no JWKS: an object with a list "keys" is expected')
    keys: dict[str | None, jwt.PyJWK] = {}
    for entry in document["keys"]:
        if not _fits(entry, algorithm):
            continue
        try:
            keys[entry.get("kid")] = jwt.PyJWK(entry, algorithm)
        except PyJWKError as error:
            raise ValueError(f"a key of it cannot be read: {error}") from error
    if not keys:
        raise ValueError(f"it has no {KEY_TYPES[algorithm]} key for {algorithm}")
    return keys


def _fits(entry: Any, algorithm: str) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("kty") == KEY_TYPES[algorithm]
        and entry.get("alg", algorithm) == algorithm
        and entry.get("use", "sig") == "sig"
    )


def require_place(place: str, environment: str) -> str:
    """Return where the JWKS is.

    Raises:
        InvalidSettings: the file is not there, or the URL is not https outside development.
    """
    if "://" not in place:
        if not Path(place).is_file():
            raise InvalidSettings(
                f"DURABLE_JOBS_JWT_JWKS: there is no file {place!r}; name the file or the https URL of a JWKS"
            )
        return place
    if not place.startswith("https://") and not (
        environment == "development" and place.startswith("http://")
    ):
        raise InvalidSettings(
            "DURABLE_JOBS_JWT_JWKS: a URL must begin with https:// (http:// in development)"
        )
    return place
