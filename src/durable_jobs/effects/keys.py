"""The names of effects: key and type, and the key that is given to a provider.

Invariant: the provider's key follows from tenant, type and key alone, so every attempt of every chain,
and a database restored from a backup, gives the provider the same one.
"""

from __future__ import annotations

import json
from uuid import UUID, uuid5

from durable_jobs.errors import BadInput

MAX_KEY = 255
MAX_TYPE = 100
_NAMESPACE = UUID("3c6f0f0e-3b52-5d1c-9a7e-6a1f5a1c7d20")


def checked(key: str, effect_type: str) -> None:
    """Refuse names that cannot be stored.

    Raises:
        BadInput: naming the field and the value.
    """
    for field, value, longest in (("key", key, MAX_KEY), ("effect type", effect_type, MAX_TYPE)):
        if not isinstance(value, str):
            raise BadInput(f"{field} of an effect is {value!r}: it must be text, use str(...)")
        if not 1 <= len(value) <= longest or not value.isprintable():
            raise BadInput(
                f"{field} of an effect {value[:40]!r}: it must have 1 to {longest} printable characters;"
                " for a longer one use its hash"
            )


def provider_key(tenant_id: str, key: str, effect_type: str) -> str:
    """Return the key for the provider, 36 characters of a UUID."""
    return str(uuid5(_NAMESPACE, json.dumps([tenant_id, effect_type, key])))
