"""The job types and queues of this program, collected from the loaded modules.

Invariant: every declared type has a declared queue; nothing is declared at run time.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType

from durable_jobs.errors import InvalidDeclaration, UnknownJobType, UnknownQueue
from durable_jobs.job_types import MARK, JobType
from durable_jobs.queues import BUILT_IN, Queue


@dataclass(frozen=True)
class Registry:
    """Job types and queues by name."""

    job_types: dict[str, JobType]
    queues: dict[str, Queue]

    @classmethod
    def of(cls, job_types: Iterable[JobType], queues: Iterable[Queue] = ()) -> Registry:
        """Build a registry; the built-in queues are always in it.

        Raises:
            InvalidDeclaration: two different declarations share a name.
            UnknownQueue: a type's queue is not declared.
        """
        types = list(job_types)
        named: dict[str, Queue] = {}
        for queue in [*BUILT_IN, *queues, *(t.declared_queue for t in types if t.declared_queue)]:
            _add_queue(named, queue)
        by_name: dict[str, JobType] = {}
        for declared in types:
            _add_type(by_name, declared)
            if declared.queue not in named:
                raise UnknownQueue(
                    f"job type {declared.name!r} names the queue {declared.queue!r}, which is not declared;"
                    f" add Queue({declared.queue!r}) to its module{_near(declared.queue, named)}"
                )
        return cls(by_name, named)

    @classmethod
    def from_modules(cls, modules: Iterable[ModuleType]) -> Registry:
        """Collect what the modules hold as attributes: `Queue` objects and marked processors."""
        types: dict[int, JobType] = {}
        queues: dict[int, Queue] = {}
        for module in modules:
            for value in vars(module).values():
                # Looked at, not asked: a proxy (of a web framework, say) fails when it is asked for anything.
                declared = inspect.getattr_static(value, MARK, None)
                if isinstance(declared, JobType):
                    types[id(declared)] = declared
                elif issubclass(type(value), Queue):
                    queues[id(value)] = value
        return cls.of(types.values(), queues.values())

    def job_type(self, name: str) -> JobType:
        """Return a declared type.

        Raises:
            UnknownJobType: listing near matches.
        """
        try:
            return self.job_types[name]
        except KeyError:
            raise UnknownJobType(
                f"unknown job type {name!r}{_near(name, self.job_types)}; known: {_known(self.job_types)};"
                " a type of your own is found when DURABLE_JOBS_MODULES names its module"
            ) from None

    def queue(self, name: str) -> Queue:
        """Return a declared queue.

        Raises:
            UnknownQueue: listing near matches.
        """
        try:
            return self.queues[name]
        except KeyError:
            raise UnknownQueue(
                f"unknown queue {name!r}{_near(name, self.queues)}; declared: {_known(self.queues)}"
            ) from None


def _add_queue(named: dict[str, Queue], queue: Queue) -> None:
    known = named.setdefault(queue.name, queue)
    if known != queue and known not in BUILT_IN:
        raise InvalidDeclaration(f"queue {queue.name!r} is declared twice: {known} and {queue}")
    named[queue.name] = queue


def _add_type(by_name: dict[str, JobType], declared: JobType) -> None:
    known = by_name.setdefault(declared.name, declared)
    if known != declared:
        raise InvalidDeclaration(
            f"job type {declared.name!r} is declared twice: by {_where(known)} and by {_where(declared)}"
        )


def _where(declared: JobType) -> str:
    inner = getattr(declared.processor, "fn", declared.processor)
    return f"{inner.__module__}.{inner.__qualname__}"


def _near(name: str, known: Iterable[str]) -> str:
    by_fold = {k.casefold(): k for k in known}
    matches = difflib.get_close_matches(name.casefold(), by_fold, n=3)
    return f" (did you mean {', '.join(by_fold[m] for m in matches)}?)" if matches else ""


def _known(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "") or "none"
