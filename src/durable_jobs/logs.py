"""Structured logs: a line that is written while a job is worked on names the job, its tenant, its correlation id.

Invariant: no line carries a password; what looks like a login in a URL, or is named as a secret, is hidden.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, TextIO

import structlog

from durable_jobs.jobs import ClaimedJob
from durable_jobs.tenants import current_tenant

LogFormat = Literal["auto", "json", "text"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
HIDDEN = "***"

_job: ContextVar[ClaimedJob | None] = ContextVar("durable_jobs_logged_job", default=None)
_SECRET = re.compile(r"password|passwd|secret|token|authorization|api_?key|cookie", re.IGNORECASE)
_LOGIN = re.compile(r"(\w+://[^\s:/@]*:)[^\s/]+(@)")
_BEARER = re.compile(r"(\bBearer\s+)\S+", re.IGNORECASE)

Event = MutableMapping[str, Any]


def work_on(job: ClaimedJob) -> None:
    """Name this job in all that is logged from here on in the running task, and in its threads."""
    _job.set(job)


def job_ids() -> dict[str, str]:
    """Return what lines of this context are to name: of the job, or only the tenant, or nothing."""
    job = _job.get()
    if job is None:
        tenant = current_tenant()
        return {} if tenant is None else {"tenant_id": tenant}
    return ids_of(job)


def ids_of(job: ClaimedJob) -> dict[str, str]:
    """Return what lines about a job name."""
    ids = {"job_id": str(job.job_id), "tenant_id": job.tenant_id}
    return ids if job.correlation_id is None else ids | {"correlation_id": job.correlation_id}


def add_job_ids(_logger: Any, _method: str, event: Event) -> Event:
    """Add the ids of this context to a line; what the line says itself wins."""
    for name, value in job_ids().items():
        event.setdefault(name, value)
    return event


def hide_secrets(_logger: Any, _method: str, event: Event) -> Event:
    """Take out what nobody may read in a log."""
    for name, value in event.items():
        if _SECRET.search(name) and not isinstance(value, (int, float, type(None))):
            event[name] = HIDDEN
        elif isinstance(value, str):
            event[name] = without_secrets(value)
    return event


def without_secrets(text: str) -> str:
    """Return the text without the passwords of URLs and without bearer tokens."""
    if "@" in text:
        text = _LOGIN.sub(rf"\1{HIDDEN}\2", text)
    return _BEARER.sub(rf"\1{HIDDEN}", text) if "earer" in text else text


def enrichers() -> list[Any]:
    """Return what happens to every line before it is written, whoever writes it."""
    return [
        structlog.contextvars.merge_contextvars,
        add_job_ids,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        # As plain text: the other ways to show an exception show local variables, and so secrets.
        structlog.processors.format_exc_info,
        hide_secrets,
    ]


def log_for_people(level: LogLevel = "INFO", log_format: LogFormat = "auto") -> None:
    """Log of a command: on stderr and as text, unless JSON is asked for; stdout is for answers."""
    _configure(
        [*enrichers(), *_rendering("json" if log_format == "json" else "text", sys.stderr)],
        # Whatever stderr is then: it may be another one than now.
        lambda *_: structlog.PrintLogger(sys.stderr),
        level,
    )


def log_as_service(level: LogLevel, log_format: LogFormat, stream: TextIO = sys.stderr) -> None:
    """Log of a process that serves: every line, also of libraries, in one format; JSON unless on a terminal."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*enrichers(), structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_rendering(log_format, stream),
            ],
        )
    )
    root = logging.getLogger()
    for known in list(root.handlers):
        root.removeHandler(known)
    root.addHandler(handler)
    root.setLevel(level)
    to_handler = structlog.stdlib.ProcessorFormatter.wrap_for_formatter
    _configure(
        [*enrichers(), structlog.stdlib.add_logger_name, to_handler],
        structlog.stdlib.LoggerFactory(),
        level,
    )


def log_through(processors: Sequence[Any], level: LogLevel) -> None:
    """Log of a process whose lines another library writes, through the standard library's loggers."""
    _configure([*enrichers(), *processors], structlog.stdlib.LoggerFactory(), level)


def _configure(processors: Sequence[Any], factory: Any, level: LogLevel) -> None:
    structlog.configure(
        processors=list(processors),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=factory,
        cache_logger_on_first_use=False,
    )


def _rendering(log_format: LogFormat, stream: TextIO) -> list[Any]:
    on_terminal = stream.isatty()
    if log_format == "json" or (log_format == "auto" and not on_terminal):
        return [structlog.processors.JSONRenderer(default=str)]
    return [structlog.dev.ConsoleRenderer(colors=on_terminal)]
