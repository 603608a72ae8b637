"""A job type: one processor, the model of its payload, and the policy for its failures.

`@job_type` only marks the processor; `durable_jobs.registry` collects what the loaded modules hold.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel

from durable_jobs.errors import InvalidDeclaration
from durable_jobs.policies import policy_of
from durable_jobs.queues import Queue

OnOrphan = Literal["fail", "replay"]
Visibility = Literal["task_run", "history"]
Upgrade = Callable[[dict[str, Any], int], dict[str, Any]]
"""Takes the stored payload and its version, returns the payload of the current version."""
Backoff = Callable[[Any], timedelta | None]
"""Takes the request, returns how long its first retry waits."""

P = TypeVar("P", bound=Callable[..., Any])
T = TypeVar("T")

MARK = "__durable_job_type__"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class JobType:
    """What is declared with `@job_type`."""

    name: str
    processor: Callable[..., Any] = field(repr=False)
    payload_model: type[BaseModel]
    queue: str
    max_retries: int
    retryable: bool
    timeout: timedelta
    on_orphan: OnOrphan
    visibility: Visibility
    version: int
    retry_backoff: timedelta | Backoff | None = None
    follows: bool = False
    upgrade: Upgrade | None = field(default=None, repr=False)
    declared_queue: Queue | None = field(default=None, repr=False)
    is_async: bool = field(init=False)
    """Whether the processor runs on the event loop; otherwise it runs in a thread."""

    def __post_init__(self) -> None:
        # Found out once: it costs more than all else that happens before a job begins.
        object.__setattr__(self, "is_async", is_async(self.processor))

    def backoff_of(self, request: BaseModel) -> timedelta | None:
        """Return how long the first retry of a request waits."""
        return self.retry_backoff(request) if callable(self.retry_backoff) else self.retry_backoff


def job_type(
    name: str,
    *,
    queue: str | Queue = "default",
    max_retries: int | None = None,
    retryable: bool | None = None,
    retry_backoff: timedelta | Backoff | None = None,
    timeout: timedelta = timedelta(hours=1),
    on_orphan: OnOrphan = "fail",
    visibility: Visibility = "task_run",
    follows: bool = False,
    version: int = 1,
    upgrade: Upgrade | None = None,
    payload: type[BaseModel] | None = None,
) -> Callable[[P], P]:
    """Declare a processor as a job type.

    Args:
        name: letters, digits, `_`, `.`, `-`; 100 characters at most. By custom in capitals.
        queue: a queue's name, or the `Queue` itself.
        max_retries: how many new jobs the dead-letter flow may make of a failed one. By default what
            `durable_jobs.policies` says of the name, else 3.
        retryable: False means a failure is final; by default as its policy says.
        retry_backoff: how long the dead-letter flow lets the first retry wait, twice as long each
            further one, a day at most; without it retries wait for nothing. Or a function of the request.
        timeout: how long one execution may take before it fails.
        on_orphan: "fail" when the executor dies, or "replay" to run the same job again.
        visibility: "task_run" shows each job as a Prefect task run, "history" only in job_history.
        follows: the processor only follows work that is done elsewhere, and finds it again when it is called
            anew: such jobs go from a shift to the next instead of holding it up, and are not suspected when
            their executor crashes. It needs on_orphan "replay" and an async processor.
        version: version of the payload model; raise it when stored payloads no longer fit.
        upgrade: turns a stored payload of an older version into one of this version.
        payload: the payload's model, when it cannot be read from the processor's first annotation.

    Raises:
        InvalidDeclaration: when the declaration cannot work, naming what is wrong.
    """

    def mark(processor: P) -> P:
        declared = JobType(
            name=_checked_name(name),
            processor=processor,
            payload_model=payload or _model_of(name, processor),
            queue=queue.name if isinstance(queue, Queue) else queue,
            max_retries=_at_least(name, "max_retries", _given(max_retries, policy_of(name).max_retries), 0),
            retryable=_given(retryable, policy_of(name).retryable),
            timeout=_positive(name, "timeout", timeout),
            on_orphan=_one_of(name, "on_orphan", on_orphan, ("fail", "replay")),
            visibility=_one_of(name, "visibility", visibility, ("task_run", "history")),
            version=_at_least(name, "version", version, 1),
            retry_backoff=(
                _positive(name, "retry_backoff", retry_backoff)
                if isinstance(retry_backoff, timedelta)
                else retry_backoff
            ),
            follows=_may_follow(name, follows, on_orphan, processor),
            upgrade=upgrade,
            declared_queue=queue if isinstance(queue, Queue) else None,
        )
        setattr(processor, MARK, declared)
        return processor

    return mark


def is_async(processor: Callable[..., Any]) -> bool:
    """Tell whether calling the processor gives an awaitable; also for Prefect tasks and flows."""
    inner = getattr(processor, "fn", processor)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(processor)


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidDeclaration(
            f"job type {name!r}: the name starts with a letter and has letters, digits, '_', '.', '-';"
            " 100 characters at most"
        )
    return name


def _model_of(name: str, processor: Callable[..., Any]) -> type[BaseModel]:
    inner = getattr(processor, "fn", processor)
    parameters = list(inspect.signature(inner).parameters.values())
    if len(parameters) != 2:
        raise InvalidDeclaration(
            f"job type {name!r}: the processor takes (request, context), {inner.__qualname__} takes"
            f" ({', '.join(p.name for p in parameters)})"
        )
    try:
        model = get_type_hints(inner).get(parameters[0].name)
    except NameError as error:
        raise InvalidDeclaration(
            f"job type {name!r}: an annotation of {inner.__qualname__} cannot be resolved ({error});"
            " import the name at run time, or pass payload=YourModel to @job_type"
        ) from error
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise InvalidDeclaration(
            f"job type {name!r}: annotate {parameters[0].name!r} of {inner.__qualname__} with a pydantic model"
            f" (it is {model!r}), or pass payload=YourModel to @job_type"
        )
    return model


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _at_least(name: str, what: str, value: int, least: int) -> int:
    if value < least:
        raise InvalidDeclaration(f"job type {name!r}: {what} is {value}, it must be at least {least}")
    return value


def _positive(name: str, what: str, length: timedelta) -> timedelta:
    if length <= timedelta(0):
        raise InvalidDeclaration(f"job type {name!r}: {what} is {length}, it must be longer than nothing")
    return length


V = TypeVar("V", bound=str)


def _may_follow(name: str, follows: bool, on_orphan: str, processor: Callable[..., Any]) -> bool:
    if follows and (on_orphan != "replay" or not is_async(processor)):
        raise InvalidDeclaration(
            f"job type {name!r}: follows is set, so on_orphan must be 'replay' and the processor async"
        )
    return follows


def _one_of(name: str, what: str, value: V, allowed: tuple[str, ...]) -> V:
    if value not in allowed:
        raise InvalidDeclaration(f"job type {name!r}: {what} is {value!r}, it must be one of {allowed}")
    return value
