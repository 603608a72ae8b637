"""What is stored comes back as the same typed value, or is refused with the path: never a silent change."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, create_model
from pydantic.alias_generators import to_camel

from durable_jobs import payloads
from durable_jobs.errors import BadInput, InvalidPayload, PayloadTooLarge
from durable_jobs.job_types import JobType, Upgrade


def declared(model: type[BaseModel], *, version: int = 1, upgrade: Upgrade | None = None) -> JobType:
    kind = JobType("T", print, model, "default", 3, True, timedelta(hours=1), "fail", "history", version)
    return replace(kind, upgrade=upgrade)


def field(kind: Any) -> type[BaseModel]:
    return create_model("Request", value=(kind, ...))


def store(model: type[BaseModel], data: Any, *, max_bytes: int = 10**6, max_depth: int = 64) -> Any:
    return payloads.store(declared(model), data, max_bytes=max_bytes, max_depth=max_depth)


class Colour(StrEnum):
    RED = "red"


class Size(Enum):
    BIG = 3


BERLIN = ZoneInfo("Europe/Berlin")
TYPED = [
    (date, date(2024, 2, 29)),
    (datetime, datetime(2024, 2, 29, 1, 2, 3, 4)),  # noqa: DTZ001 -- a naive one is the case
    (datetime, datetime(2024, 2, 29, 1, 2, 3, 4, tzinfo=UTC)),
    (datetime, datetime(2024, 7, 1, 1, 2, 3, tzinfo=BERLIN)),
    (datetime, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))),
    (time, time(23, 59, 59, 999_999)),
    (timedelta, timedelta(days=400, microseconds=1)),
    (timedelta, timedelta(microseconds=-1)),
    (Decimal, Decimal("0.10")),
    (Decimal, Decimal("1E+30")),
    (Decimal, Decimal("12345678901234567890.123456789")),
    (int, 2**53 + 1),
    (int, 2**64 + 1),
    (int, -(10**300)),
    (float, 0.1),
    (float, 1e300),
    (float, 5e-324),
    (float, -0.0),
    (bool, True),
    (UUID, UUID("01a22e6b-f6f4-70e9-bfad-428900b548a9")),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (dict[int, str], {1: "a", 2: "b"}),
    (dict[UUID, date], {UUID(int=1): date(2024, 1, 1)}),
    (dict[str, Any], {"a": [1, 2.5, None, True, "x", {"b": {}}]}),
    (bytes, b"plain text"),
    (Colour, Colour.RED),
    (Size, Size.BIG),
    (PurePosixPath, PurePosixPath("/a/b")),
    (str, "ünïcode \U0001f600 \u2028 \\u0000 \" ' \n"),
    (str, ""),
    (Any, {"e+": "1e+5"}),
    (list[Any], [10**25, 1e22, -1.5e-300]),
]


@pytest.mark.parametrize(("kind", "value"), TYPED, ids=range(len(TYPED)))
def test_a_typed_value_comes_back_equal(kind: Any, value: Any) -> None:
    model = field(kind)
    stored = store(model, model(value=value))
    back = payloads.load(declared(model), stored.text, 1)
    assert back == model(value=value)
    assert type(back.value) is type(value)  # type: ignore[attr-defined]
    # Storing what came back gives the same text and hash: a retry is the same request.
    assert store(model, back) == stored


REFUSED = [
    (float, math.nan, "value"),
    (float, math.inf, "value"),
    (Any, {"list": [1, math.nan]}, r"value\.list\[1\]"),
    (Decimal, Decimal("NaN"), "value"),
    (Decimal, Decimal("Infinity"), "value"),
    (Any, datetime(2024, 1, 1, tzinfo=UTC), "value"),
    (Any, {"when": date(2024, 1, 1)}, r"value\.when"),
    (Any, {"deep": [{"cost": Decimal("0.10")}]}, r"value\.deep\[0\]\.cost"),
    (Any, {"tags": {1, 2}}, r"value\.tags"),
    (Any, (1, 2), "value"),
    (Any, {1: "a"}, "value"),
    (Any, UUID(int=1), "value"),
    (Any, b"bytes", "value"),
    (Any, timedelta(1), "value"),
    (bytes, b"\xff\xfe", "value"),
    (str, "a\x00b", "value"),
    (Any, {"a\x00": 1}, "value"),
    (str, "\ud800", "value"),
    (Any, {"a": ["\udfff"]}, r"value\.a\[0\]"),
    (Any, object(), "value"),
    (Any, lambda: None, "value"),
    (Any, 10**5000, "value"),
    (Any, [1.5e300], r"value\[0\]"),
    (str | Decimal, Decimal("0.10"), "value"),
    (date | str, "2024-01-01", "value"),
]


@pytest.mark.parametrize(("kind", "value", "path"), REFUSED, ids=range(len(REFUSED)))
def test_what_would_change_is_refused_with_its_path(kind: Any, value: Any, path: str) -> None:
    model = field(kind)
    try:
        request = model(value=value)
    except ValueError:
        request = model.model_construct(value=value)
    with pytest.raises(InvalidPayload, match=rf"payload of T.*{path}"):
        store(model, request)


def test_a_request_that_does_not_fit_names_every_fault() -> None:
    model = create_model("Request", a=(int, ...), b=(UUID, ...), c=(str, "x"))
    with pytest.raises(InvalidPayload, match=r"does not fit Request: a: .*; b: Field required"):
        store(model, {"a": "no number"})
    with pytest.raises(InvalidPayload, match=r"does not fit Request: .*JSON"):
        store(model, '{"a": "no number"')
    with pytest.raises(InvalidPayload, match="is a Other, it takes Request or a mapping"):
        store(model, create_model("Other")())


def test_the_fault_does_not_repeat_the_value() -> None:
    with pytest.raises(InvalidPayload) as told:
        store(field(int), {"value": "hunter2"})
    assert "hunter2" not in str(told.value)


def test_json_text_and_mappings_and_models_are_the_same_request() -> None:
    model = create_model("Request", a=(UUID, ...), b=(date, ...))
    tree = {"a": "01a22e6b-f6f4-70e9-bfad-428900b548a9", "b": "2024-01-01"}
    texts = [json.dumps(tree), json.dumps(dict(reversed(tree.items()))).encode(), tree, model(**tree)]
    assert len({store(model, text) for text in texts}) == 1


class Inner(BaseModel):
    model_config = ConfigDict(frozen=True, serialize_by_alias=True, alias_generator=to_camel)
    short_names: frozenset[int]


class WithSets(BaseModel):
    plain: set[int] = set()
    nested: list[set[int]] = []
    keyed: dict[UUID, set[int]] = {}
    models: set[Inner] = set()
    root: RootModel[set[int]] | None = None


def test_a_set_is_written_in_one_order_however_it_was_filled() -> None:
    """0, 8 and 16 collide in a small set, so their order is that of their arrival."""
    fillings = [set([0, 8, 16]), set([16, 8, 0]), set([8, 16, 0])]  # noqa: C405 -- the order is the case
    assert len({tuple(one) for one in fillings}) > 1
    requests = [
        WithSets(
            plain=one,
            nested=[{1}, one],
            keyed={UUID(int=1): one},
            models={Inner(shortNames=frozenset(one)), Inner(shortNames=frozenset([1]))},  # type: ignore[call-arg]
            root=RootModel[set[int]](one),
        )
        for one in fillings
    ]
    assert len({store(WithSets, request) for request in requests}) == 1


def test_the_same_set_of_texts_has_the_same_hash_in_every_process() -> None:
    program = (
        "from tests.unit.payloads.test_strict_payloads import field, store;"
        "print(store(field(set[str]), {'value': list('abcdefgh')}).hash)"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parents[3],
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in "123"
    }
    assert len(hashes) == 1


def test_the_hash_tells_types_apart() -> None:
    one, other = field(int), field(int)
    first = payloads.store(declared(one), {"value": 1}, max_bytes=100, max_depth=9)
    assert (
        payloads.store(replace(declared(other), name="U"), {"value": 1}, max_bytes=100, max_depth=9).hash
        != first.hash
    )


def test_names_that_differ_in_json_come_back_too() -> None:
    class Named(BaseModel):
        model_config = ConfigDict(alias_generator=to_camel)
        document_id: int
        sub: Mapping[str, int] = Field(validation_alias="subParts")

    stored = store(Named, {"documentId": 1, "subParts": {"a": 1}})
    assert payloads.load(declared(Named), stored.text, 1) == Named(documentId=1, subParts={"a": 1})  # type: ignore[call-arg]


def test_a_field_that_is_not_stored_is_refused() -> None:
    class Leaky(BaseModel):
        secret: str = Field("none", exclude=True)

    with pytest.raises(InvalidPayload, match="secret"):
        store(Leaky, {"secret": "x"})


def test_a_subclass_is_refused_where_its_own_fields_would_be_lost() -> None:
    class Base(BaseModel):
        a: int

    class Derived(Base):
        b: int

    for model, request in ((Base, Derived(a=1, b=2)), (field(Base), field(Base)(value=Derived(a=1, b=2)))):
        with pytest.raises(InvalidPayload):
            store(model, request)


@pytest.mark.parametrize("depth", [200, 100_000])
def test_deep_nesting_is_refused_with_the_number(depth: int) -> None:
    deep: Any = "bottom"
    for _ in range(depth):
        deep = [deep]
    with pytest.raises(BadInput, match=r"nested deeper than 64 levels|written as JSON|does not fit"):
        store(field(Any), {"value": deep})


def test_nesting_up_to_the_limit_is_stored() -> None:
    deep: Any = 1
    for _ in range(63):
        deep = {"a": deep}
    assert store(field(Any), {"value": deep})
    with pytest.raises(PayloadTooLarge, match=r"64 levels \(DURABLE_JOBS_MAX_PAYLOAD_DEPTH\)"):
        store(field(Any), {"value": {"a": deep}})


def test_an_overlong_payload_is_refused_with_the_numbers() -> None:
    with pytest.raises(PayloadTooLarge, match=r"5,000,0\d\d bytes.*at most 1,000,000.*MAX_PAYLOAD_BYTES"):
        store(field(str), {"value": "x" * 5_000_000})
    # Bytes are counted, not characters.
    with pytest.raises(PayloadTooLarge, match=r"\d+ bytes"):
        store(field(str), {"value": "ü" * 60}, max_bytes=100)


class V2(BaseModel):
    name: str


def upgrade(old: dict[str, Any], version: int) -> dict[str, Any]:
    return {"name": f"{old['first']} {old['last']} (from {version})"}


def test_a_payload_of_an_older_version_is_upgraded() -> None:
    kind = declared(V2, version=2, upgrade=upgrade)
    assert payloads.load(kind, '{"first": "Ann", "last": "Lee"}', 1) == V2(name="Ann Lee (from 1)")
    assert payloads.load(kind, '{"name": "as it is"}', 2) == V2(name="as it is")


def test_a_payload_that_no_longer_fits_says_why() -> None:
    with pytest.raises(InvalidPayload, match="cannot be upgraded from version 1 to 2: KeyError: 'last'"):
        payloads.load(declared(V2, version=2, upgrade=upgrade), '{"first": "Ann"}', 1)
    with pytest.raises(InvalidPayload, match="does not fit V2: name: Field required"):
        payloads.load(declared(V2), '{"first": "Ann"}', 1)
    with pytest.raises(InvalidPayload, match="has version 3, this program knows 2; update the program"):
        payloads.load(declared(V2, version=2, upgrade=upgrade), '{"name": "x"}', 3)
