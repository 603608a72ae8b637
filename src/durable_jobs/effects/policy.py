"""What becomes of an effect whose last attempt has an unknown end: the effect's policy decides.

Invariant: never silently done, never silently repeated. A probe asks the provider; where there is none, or
it does not know either, the effect is repeated with the provider's own key or a person is asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from durable_jobs.errors import BadInput

if TYPE_CHECKING:
    from durable_jobs.effects.effect import Effect

OnUnknown = Literal["stop", "repeat"]
Probe = Callable[["Effect"], "Awaitable[bool | None] | bool | None"]
"""Asks the provider: True it happened, False it did not, None it cannot be known."""

DEFAULT_WAIT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Policy:
    """How one effect is treated when things go wrong."""

    on_unknown: OnUnknown = "stop"
    probe: Probe | None = None
    releases: tuple[type[BaseException], ...] = ()
    """Exceptions that prove that the effect was not made."""
    wait: timedelta = DEFAULT_WAIT
    """How long to wait for another execution that is making the same effect."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, naming the field."""
        if self.on_unknown not in ("stop", "repeat"):
            raise BadInput(f"on_unknown is {self.on_unknown!r}: use 'stop' or 'repeat'")
        if self.probe is not None and not callable(self.probe):
            raise BadInput(f"probe is {self.probe!r}: give a function that takes the effect")
        for kind in self.releases:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise BadInput(f"releases has {kind!r}: give exception types")
        if self.wait < timedelta(0):
            raise BadInput(f"wait is {self.wait}: it cannot be negative")


def probe_is_async(probe: Probe) -> bool:
    """Tell whether calling the probe gives an awaitable; any other is called in a thread."""
    return inspect.iscoroutinefunction(probe) or inspect.iscoroutinefunction(getattr(probe, "__call__", None))  # noqa: B004 -- an object with an async __call__


def checked_probe_answer(answer: object) -> bool | None:
    """Return a probe's answer.

    Raises:
        BadInput: it is no answer, so nothing follows from it.
    """
    if answer is None or isinstance(answer, bool):
        return answer
    raise BadInput(
        f"the probe returned {answer!r}: return True (it happened), False (it did not) or None (not known)"
    )
