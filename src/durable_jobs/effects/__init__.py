"""Effects that happen once: a row for each, made before the effect and settled after it."""

from durable_jobs.effects.effect import Effect
from durable_jobs.effects.errors import (
    EffectHeld,
    EffectNotChecked,
    EffectNotMade,
    EffectUnknown,
    ExecutionOver,
)
from durable_jobs.effects.store import EffectsStore, EffectState, EffectView

__all__ = [
    "Effect",
    "EffectHeld",
    "EffectNotChecked",
    "EffectNotMade",
    "EffectState",
    "EffectUnknown",
    "EffectView",
    "EffectsStore",
    "ExecutionOver",
]
