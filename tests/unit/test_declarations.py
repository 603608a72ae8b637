"""What is declared in a way that cannot work stops the start, with the name, the fault and the way out."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from durable_jobs import JobContext, Queue, job_type, loading
from durable_jobs.errors import InvalidDeclaration, ModuleNotLoadable, UnknownJobType, UnknownQueue
from durable_jobs.job_types import MARK, JobType
from durable_jobs.registry import Registry


class Request(BaseModel):
    """What is asked."""


def declared(name: str, processor: Callable[..., Any] | None = None, **options: Any) -> JobType:
    async def fitting(request: Request, context: JobContext) -> None: ...

    found: JobType = getattr(job_type(name, **options)(processor or fitting), MARK)
    return found


def no_annotation(request, context): ...  # type: ignore[no-untyped-def]


def one_parameter(request: Request) -> None: ...


def no_model(request: dict[str, Any], context: JobContext) -> None: ...


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("", {}, "job type '': the name starts with a letter"),
        ("9", {}, "the name starts with a letter"),
        ("A" * 101, {}, "100 characters at most"),
        ("T", {"processor": one_parameter}, "takes (request, context), one_parameter takes (request)"),
        ("T", {"processor": no_annotation}, "annotate 'request' of no_annotation with a pydantic model"),
        ("T", {"processor": no_model}, "annotate 'request' of no_model with a pydantic model"),
        ("T", {"max_retries": -1}, "job type 'T': max_retries is -1, it must be at least 0"),
        ("T", {"timeout": timedelta(0)}, "job type 'T': timeout is 0:00:00, it must be longer than nothing"),
        ("T", {"on_orphan": "retry"}, "on_orphan is 'retry', it must be one of ('fail', 'replay')"),
        ("T", {"visibility": "none"}, "visibility is 'none', it must be one of"),
        ("T", {"version": 0}, "version is 0, it must be at least 1"),
    ],
)
def test_a_type_that_cannot_work_is_refused_where_it_is_declared(
    name: str, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidDeclaration) as told:
        declared(name, **options)
    assert said in str(told.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "Capitals"}, "queue name 'Capitals': use lower-case letters"),
        ({"name": ""}, "queue name '': use lower-case letters"),
        ({"name": "q", "concurrency": 0}, "queue 'q': concurrency is 0, it must be at least 1; to hold"),
        ({"name": "q", "max_pending": 0}, "queue 'q': max_pending is 0, it must be at least 1 or None"),
        ({"name": "q", "isolation": "none"}, "queue 'q': isolation is 'none'"),
    ],
)
def test_a_queue_that_cannot_work_is_refused_where_it_is_declared(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidDeclaration) as told:
        Queue(**options)
    assert said in str(told.value)


def test_a_type_whose_queue_nobody_declares_is_refused() -> None:
    with pytest.raises(UnknownQueue, match=r"job type 'T' names the queue 'archve', .*did you mean archive"):
        Registry.of([declared("T", queue="archve")], [Queue("archive")])


def test_two_declarations_of_one_name_are_refused_unless_they_are_the_same() -> None:
    one = declared("T")
    assert Registry.of([one, one]).job_type("T") is one
    with pytest.raises(InvalidDeclaration, match=r"job type 'T' is declared twice: by .* and by "):
        Registry.of([one, declared("T")])
    with pytest.raises(
        InvalidDeclaration, match=r"queue 'q' is declared twice: .*concurrency=1.*concurrency=2"
    ):
        Registry.of([], [Queue("q", concurrency=1), Queue("q", concurrency=2)])
    assert Registry.of([], [Queue("fast", concurrency=3)]).queue("fast").concurrency == 3


def test_an_unknown_name_is_told_with_what_is_near() -> None:
    registry = Registry.of([declared("DOCUMENT_ARCHIVE")])
    with pytest.raises(
        UnknownJobType, match=r"'document_archiv' \(did you mean DOCUMENT_ARCHIVE\?\); known: "
    ):
        registry.job_type("document_archiv")
    with pytest.raises(
        UnknownQueue, match=r"'defualt' \(did you mean default\?\); declared: deep, default, fast"
    ):
        registry.queue("defualt")


@pytest.mark.parametrize(
    "fault", ["raise ValueError('no')", "import not_there", "def", "raise SystemExit(3)"]
)
def test_a_module_that_does_not_load_is_named_with_its_error(fault: str, tmp_path: Path) -> None:
    module = tmp_path / "theirs.py"
    module.write_text(fault)
    with pytest.raises(ModuleNotLoadable, match=r"module '.*theirs.py' of DURABLE_JOBS_MODULES .*: \w+: "):
        loading.load_registry([str(module)])


def test_a_package_that_does_not_load_is_named_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("theirs", "not_there.jobs", loading.ENTRY_POINT_GROUP)
    monkeypatch.setattr(loading, "entry_points", lambda **_: [point])
    loading._load.cache_clear()
    try:
        with pytest.raises(ModuleNotLoadable, match=r"module 'not_there\.jobs' of the entry point 'theirs'"):
            loading.load_registry([])
    finally:
        loading._load.cache_clear()
