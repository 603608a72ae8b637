"""The effect inside its block: what is known of it, and what to tell the provider."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from durable_jobs.effects.keys import provider_key


class Effect:
    """One effect of one execution; ask `already_done` before making it."""

    __slots__ = ("_already_done", "_original_job_id", "asked", "effect_type", "key", "provider_key", "result")

    def __init__(self, tenant_id: str, key: str, effect_type: str, result: Any = None) -> None:
        """Made by `context.effect`."""
        self.key = key
        self.effect_type = effect_type
        self.provider_key = provider_key(tenant_id, key, effect_type)
        """Key for the provider's own idempotency, the same in every attempt."""
        self.result: Any = result
        """What the attempt that made it has set here: JSON, such as the provider's id. Set it in the block."""
        self.asked = False
        self._already_done = False
        self._original_job_id: UUID | None = None

    @property
    def already_done(self) -> bool:
        """Whether it exists: then do nothing, and return `Skipped(...)` when nothing else is left to do."""
        self.asked = True
        return self._already_done

    @property
    def original_job_id(self) -> UUID | None:
        """The job that made it, when it exists."""
        return self._original_job_id

    @property
    def is_found(self) -> bool:
        """The same for the block itself: looking here is not asking."""
        return self._already_done

    def found(self, original_job_id: UUID | None, result: Any) -> None:
        """Note that it exists; called by the block."""
        self._already_done = True
        self._original_job_id = original_job_id
        self.result = result

    def __repr__(self) -> str:
        return f"<Effect {self.effect_type} {self.key!r}{' already done' if self._already_done else ''}>"
