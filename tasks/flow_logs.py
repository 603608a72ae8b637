"""Logs of flow runs go through Prefect, with the ids of the job that they are about.

What is logged in a job that is shown as a task run is that task run's log. Lines of jobs that are not shown, and
of the shift itself, are on the console; warnings of them reach Prefect too, as many as it takes in.
"""

from __future__ import annotations

import logging
from typing import Any

from prefect.context import FlowRunContext, TaskRunContext
from prefect.logging.handlers import APILogHandler

from durable_jobs.executor.visibility import RateCap
from durable_jobs.logs import job_ids, log_through, without_secrets
from durable_jobs.settings import Settings

OURS = "durable_jobs"
MOST_A_SECOND = 20.0
"""Lines of ours that reach Prefect's API; a server takes in only so many."""
_MARK = "job_ids_named"


class NameTheJob(logging.Filter):
    """Ends each line that is written in a job with the ids of the job."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; a line that several handlers write is changed once."""
        if _MARK not in record.__dict__ and (ids := job_ids()).get("job_id"):
            setattr(record, _MARK, True)
            record.__dict__.update(ids)
            named = " ".join(f"{name}={value}" for name, value in ids.items())
            record.msg, record.args = f"{without_secrets(record.getMessage())} [{named}]", ()
        return True


class _ForPrefect(logging.Filter):
    """Lets through warnings inside a run, as many as a server takes in."""

    def __init__(self) -> None:
        super().__init__()
        self._cap = RateCap(MOST_A_SECOND)

    def filter(self, record: logging.LogRecord) -> bool:
        in_a_run = FlowRunContext.get() is not None or TaskRunContext.get() is not None
        return in_a_run and record.levelno >= logging.WARNING and self._cap.allows()


def log_in_flows(settings: Settings) -> None:
    """Send what is logged through Prefect; safe to repeat."""
    log_through([_as_record], settings.log_level)
    ours = logging.getLogger(OURS)
    ours.setLevel(settings.log_level)
    if not any(isinstance(handler, APILogHandler) for handler in ours.handlers):
        to_prefect = APILogHandler()
        to_prefect.addFilter(_ForPrefect())
        ours.addHandler(to_prefect)
    for handler in _handlers():
        if not any(isinstance(known, NameTheJob) for known in handler.filters):
            handler.addFilter(NameTheJob())


def _handlers() -> list[logging.Handler]:
    """Return what writes the lines of task runs, of flow runs and of everybody."""
    names = ("prefect.task_runs", "prefect.flow_runs", OURS, "")
    return [handler for name in names for handler in logging.getLogger(name).handlers]


def _as_record(_logger: Any, _method: str, event: dict[str, Any]) -> tuple[tuple[str], dict[str, Any]]:
    """Return the line as the standard library takes it: its text with what it names, and the ids beside it."""
    event.pop("level", None)
    event.pop("timestamp", None)
    ids = {name: event[name] for name in ("job_id", "tenant_id", "correlation_id") if name in event}
    text, exception = str(event.pop("event")), event.pop("exception", None)
    named = " ".join(f"{name}={value}" for name, value in event.items())
    line = f"{text} [{named}]" if named else text
    # Without arguments, so a per cent sign in it is no placeholder.
    return (line if exception is None else f"{line}\n{exception}",), {"extra": ids | {_MARK: True}}
