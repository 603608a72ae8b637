"""A set is written in one order: equal requests have equal text, in whatever process they are made.

The order of a set in memory depends on how it was filled and, for text, on the process. Written as it comes,
a request repeated after a restart would be another one to its idempotency key.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Set
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, RootModel

_SETS = ("set", "frozenset")


@lru_cache(maxsize=1_000)
def may_hold_sets(model: type[BaseModel]) -> bool:
    """Tell whether a payload of this model may hold a set; most do not, and none of these is walked."""
    return _names_a_set(model.__pydantic_core_schema__)


def _names_a_set(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        return schema.get("type") in _SETS or any(
            _names_a_set(part) for name, part in schema.items() if name != "metadata"
        )
    return isinstance(schema, (list, tuple)) and any(_names_a_set(part) for part in schema)


def in_order(value: Any, tree: Any) -> Any:
    """Return a value's JSON, with the elements of each set sorted by their own JSON.

    Args:
        value: what was dumped.
        tree: its JSON, by the names of the fields.
    """
    if isinstance(value, RootModel):
        return in_order(value.root, tree)
    if isinstance(tree, dict):
        parts = _parts(value, tree)
        return {name: in_order(part, node) for part, (name, node) in zip(parts, tree.items(), strict=True)}
    if isinstance(tree, list) and isinstance(value, Collection) and len(value) == len(tree):
        nodes = [in_order(part, node) for part, node in zip(value, tree, strict=True)]
        return sorted(nodes, key=_text) if isinstance(value, Set) else nodes
    return tree


def _parts(value: Any, tree: dict[str, Any]) -> Iterable[Any]:
    """Return what each member of an object was made from; None where a serializer hides it."""
    if not isinstance(value, Mapping):
        return [getattr(value, name, None) for name in tree]
    if value.keys() == tree.keys():
        return [value[name] for name in tree]
    # Keys that are no text, such as UUIDs.
    return value.values() if len(value) == len(tree) else [None] * len(tree)


def _text(node: Any) -> str:
    return json.dumps(node, sort_keys=True)
