"""What a processor is given beside its request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from durable_jobs.effects.block import EffectBlock, Execution
from durable_jobs.effects.keys import checked
from durable_jobs.effects.policy import DEFAULT_WAIT, OnUnknown, Policy, Probe
from durable_jobs.effects.store import EffectsStore
from durable_jobs.errors import BadInput
from durable_jobs.jobs import ClaimedJob
from durable_jobs.logs import ids_of
from durable_jobs.texts import clean

MAX_MESSAGE = 500
"""Characters of a progress report's message."""

_default_logger = structlog.get_logger("durable_jobs.job")


class JobContext:
    """The job that is executed, and what its processor may tell and ask.

    Safe to use from the processor's own thread or task.
    """

    __slots__ = (
        "_effects",
        "_execution",
        "_job",
        "_logger",
        "_loop",
        "_report",
        "_stopped",
        "_why",
        "noticed_the_end",
    )

    def __init__(
        self,
        job: ClaimedJob,
        report: Callable[[ClaimedJob, str], None],
        logger: Any = None,
        *,
        effects: EffectsStore | None = None,
    ) -> None:
        """Made by the executor, on the event loop of the store that knows effects."""
        self._job = job
        self._report = report
        self._stopped = False
        self._why: str | None = None
        self.noticed_the_end = False
        # What few processors need is made when it is asked for: thousands of these are made in a second.
        self._logger = logger
        self._execution: Execution | None = None
        self._effects = effects
        self._loop = asyncio.get_running_loop() if effects is not None else None

    @property
    def logger(self) -> Any:
        """A logger that names the job; the task run's own when the job is one."""
        if self._logger is None:
            self._logger = _default_logger.bind(**ids_of(self._job))
        return self._logger

    @logger.setter
    def logger(self, logger: Any) -> None:
        self._logger = logger

    @property
    def job_id(self) -> UUID:
        """Id of this job."""
        return self._job.job_id

    @property
    def root_job_id(self) -> UUID:
        """Id of the first job of the chain; the same for every retry."""
        return self._job.root_job_id

    @property
    def tenant_id(self) -> str:
        """The tenant in whose name the job runs; also the surrounding scope."""
        return self._job.tenant_id

    @property
    def correlation_id(self) -> str | None:
        """What the submitter gave to find related work."""
        return self._job.correlation_id

    @property
    def retry_count(self) -> int:
        """0 for a first attempt."""
        return self._job.retry_count

    @property
    def cancelled(self) -> bool:
        """Whether the execution is to stop: cancelled, timed out, or its shift ends.

        Processors in a thread look at it now and then, and raise or return soon; async ones are
        interrupted. Who has seen it true and returns has not succeeded.
        """
        stopped = self._stopped
        self.noticed_the_end = self.noticed_the_end or stopped
        return stopped

    @property
    def stopped_by(self) -> str | None:
        """Why the execution is to stop: cancel, timeout, shutdown (somebody else goes on), fenced, or None."""
        return self._why

    def progress(self, current: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is; written about once a second, the last report wins.

        Args:
            current: how much is done, in any unit.
            total: how much there is in that unit.
            message: what is being done; cut at 500 characters, since lists show it too.
        """
        shown = None if message is None else clean(str(message), MAX_MESSAGE)
        document = {"current": current, "total": total, "message": shown}
        self._report(self._job, json.dumps({k: v for k, v in document.items() if v is not None}))

    def effect(
        self,
        key: str,
        effect_type: str | None = None,
        *,
        connection: Any = None,
        on_unknown: OnUnknown = "stop",
        probe: Probe | None = None,
        releases: tuple[type[BaseException], ...] = (),
        wait: timedelta = DEFAULT_WAIT,
    ) -> EffectBlock:
        """Make an irreversible effect once: `async with context.effect("mail") as effect:`.

        In a processor that is a plain function: `with context.effect(...)`. Inside, make the effect only
        when `effect.already_done` is False. An exception leaves it unknown unless it proves the contrary.

        Args:
            key: names the effect in your business: a document's hash, an order's number. With this argument
                alone it is the name of a step, and the key is the first job that this one repeats, so that
                retries and resubmissions find it.
            effect_type: what kind of effect, such as "MAIL"; key and type are unique per tenant.
            connection: a connection or session of SQLAlchemy or psycopg to the jobs' database, with an open
                transaction: the effect is recorded in it. Make the effect through it and commit right after.
            on_unknown: when an earlier attempt may have made it and no probe can tell: "stop" fails the job
                for a person to settle it, "repeat" makes it again (give `effect.provider_key` to the provider).
            probe: asks the provider, given the effect: True it happened, False it did not, None not known.
            releases: exception types that prove that the effect was not made; so does `EffectNotMade`.
            wait: how long to wait for another execution that is making the same effect.

        Raises:
            BadInput: an argument cannot be right, or this context has no store.
            ExecutionOver, EffectHeld, EffectUnknown, StoreUnavailable: on entering; let them end the processor.
        """
        if self._effects is None or self._loop is None:
            raise BadInput(
                "this context has no store for effects: give it one, JobContext(..., effects=InMemoryJobsStore())"
            )
        named, kind = (None, key) if effect_type is None else (key, effect_type)
        checked(str(self.root_job_id) if named is None else named, kind)
        policy = Policy(on_unknown, probe, releases, wait)
        if self._execution is None:
            self._execution = Execution(self._job, self._effects, self._loop, lambda: self._stopped)
        return EffectBlock(self._execution, named, kind, policy, connection)

    def stop(self, why: str = "cancel") -> None:
        """Ask the processor to stop; called by the executor."""
        self._stopped = True
        self._why = self._why or why
