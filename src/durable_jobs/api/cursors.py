"""Cursors of lists: where the next page begins, sealed, so that only what the API gave out comes back.

A cursor is good for one tenant and one question; it names a place in the order, not a row, so the row may go.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import datetime
from uuid import UUID

from durable_jobs.api.problems import FieldFault, Refusal
from durable_jobs.stores.protocols import Cursor

KEY_NAME = "cursors"
_SEAL_BYTES = 16


class CursorSeal:
    """Writes and reads the cursors of one tenant's question."""

    def __init__(self, key: bytes, tenant: str, question: object) -> None:
        """`question` is what was asked for, apart from the cursor and the size of a page."""
        asked = json.dumps([tenant, question], default=str, sort_keys=True)
        self._key = hmac.digest(key, asked.encode("utf-8", "surrogatepass"), hashlib.sha256)

    def write(self, cursor: Cursor | None) -> str | None:
        """Return a cursor as text without a meaning for people."""
        if cursor is None:
            return None
        place = json.dumps([cursor.created_at.isoformat(), str(cursor.job_id)]).encode()
        return base64.urlsafe_b64encode(self._seal(place) + place).decode().rstrip("=")

    def read(self, text: str | None) -> Cursor | None:
        """Read what `write` wrote.

        Raises:
            Refusal: it was not written here, or for another question.
        """
        if text is None:
            return None
        try:
            sealed = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        except (ValueError, binascii.Error) as error:
            raise _bad() from error
        seal, place = sealed[:_SEAL_BYTES], sealed[_SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(place)):
            raise _bad()
        moment, job_id = json.loads(place)
        return Cursor(datetime.fromisoformat(moment), UUID(job_id))

    def _seal(self, place: bytes) -> bytes:
        return hmac.digest(self._key, place, hashlib.sha256)[:_SEAL_BYTES]


def _bad() -> Refusal:
    message = (
        "it is not the nextCursor of an earlier page with the same filters; begin again without a cursor"
    )
    fault = FieldFault(field="query.cursor", kind="string", message=message)
    return Refusal(400, "bad-cursor", f"cursor: {message}", errors=[fault])
