"""Registers JSON Lines: all or nothing for each 1,000 lines, streamed, and never in doubt where it stopped.

Whatever ends it (a bad line, a full queue, the database, Ctrl-C), the message says which lines are
registered and where to go on. A statement under way is never cut off by the first Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from itertools import islice

import typer

from durable_jobs.cli.bulk_progress import BulkProgress
from durable_jobs.cli.interrupting import Interruptible
from durable_jobs.cli.options import SubmitOptions
from durable_jobs.cli.output import answer, say
from durable_jobs.cli.reading import Line, Requests
from durable_jobs.cli.running import INTERRUPTED, declared, user, with_store
from durable_jobs.cli.where import require_database
from durable_jobs.errors import BadInput, DurableJobsError, JobNotFound, StoreUnavailable
from durable_jobs.jobs import Job, NewJob
from durable_jobs.registration import MAX_BULK, prepare, register_all
from durable_jobs.runtime import Runtime
from durable_jobs.stores.postgres import PgJobsStore


class BulkStopped(DurableJobsError):
    """Not all lines were registered; the message says which are and how to go on."""

    def __init__(self, why: DurableJobsError, advice: str) -> None:
        """End with the exit code of what stopped it."""
        super().__init__(f"{why}\n{advice}")
        self.exit_code = why.exit_code


class Bulk:
    """One call's lines, and how many of them are registered."""

    def __init__(self, requests: Requests, options: SubmitOptions) -> None:
        """Nothing is read yet."""
        self._requests = requests
        self._options = options
        self._by = user()
        self._jobs = 0
        self._last_line: int | None = None
        self._next_line: int | None = None

    async def register(self, runtime: Runtime, store: PgJobsStore) -> None:
        """Register line after line until the end.

        Raises:
            BulkStopped: something is wrong with a line, the queue or the store.
            typer.Exit: Ctrl-C, or nobody reads the ids any more.
        """
        with (
            Interruptible(_acknowledge) as interruptible,
            BulkProgress(self._requests.total_bytes) as progress,
        ):
            try:
                for lines in self._chunks():
                    prepared = [self._prepared(runtime, line) for line in lines]
                    with interruptible.held_back():
                        await self._register_chunk(store, lines, prepared)
                    progress.show(self._jobs, lines[-1].bytes_read)
                    interruptible.check()
            except BadInput as error:
                raise BulkStopped(error, self._advice()) from error
            except KeyboardInterrupt:
                progress.close()
                say(f"Interrupted. {self._advice()}")
                raise typer.Exit(INTERRUPTED) from None
        say(f"{self._jobs:,} jobs registered")

    def _chunks(self) -> Iterator[list[Line]]:
        while lines := list(islice(self._requests.lines, MAX_BULK)):
            self._next_line = self._next_line or lines[0].number
            yield lines

    def _prepared(self, runtime: Runtime, line: Line) -> NewJob:
        try:
            return prepare(
                declared(runtime),
                runtime.settings,
                self._options.job_type,
                line.text,
                correlation_id=self._options.correlation_id,
                priority=self._options.priority,
                run_at=self._options.run_at,
                submitted_by=self._by,
            )
        except BadInput as error:
            raise BadInput(f"line {line.number}: {error}") from error

    async def _register_chunk(
        self, store: PgJobsStore, lines: Sequence[Line], prepared: Sequence[NewJob]
    ) -> None:
        try:
            registered = await register_all(store, prepared)
        except StoreUnavailable as error:
            raise BulkStopped(error, await self._in_doubt(store, lines, prepared[0])) from error
        except asyncio.CancelledError:
            say(f"Interrupted. {self._unknown(lines, prepared[0])}")
            raise
        except DurableJobsError as error:
            raise BulkStopped(error, self._advice()) from error
        self._jobs += len(registered)
        self._last_line, self._next_line = lines[-1].number, lines[-1].number + 1
        try:
            answer("\n".join(self._shown(job) for job, _ in registered))
        except typer.Exit:
            say(f"Nobody reads the ids. {self._advice()}")
            raise

    def _shown(self, job: Job) -> str:
        return json.dumps(job.as_json(), ensure_ascii=False) if self._options.as_json else str(job.job_id)

    async def _in_doubt(self, store: PgJobsStore, lines: Sequence[Line], first: NewJob) -> str:
        """Say what became of a statement whose answer was lost; the jobs' ids were given before it."""
        try:
            await store.get(first.job_id)
        except JobNotFound:
            return self._advice()
        except StoreUnavailable:
            return self._unknown(lines, first)
        self._last_line, self._next_line = lines[-1].number, lines[-1].number + 1
        return self._advice()

    def _unknown(self, lines: Sequence[Line], first: NewJob) -> str:
        before = "" if self._last_line is None else f"All lines up to {self._last_line} are registered. "
        return (
            f"{before}It is not known whether lines {lines[0].number} to {lines[-1].number} were, since the"
            f" answer was lost: if `durable-jobs get {first.job_id}` finds a job, all of them were, so go on"
            f" with --from-line {lines[-1].number + 1}, otherwise with --from-line {lines[0].number}."
        )

    def _advice(self) -> str:
        if self._last_line is None:
            return f"Nothing is registered{self._again()}."
        return f"All lines up to {self._last_line} are registered, and none behind{self._again()}."

    def _again(self) -> str:
        return f"; go on with --from-line {self._next_line}" if self._next_line else ""


def _acknowledge() -> None:
    say("Stopping when these lines are registered (Ctrl-C again: at once)")


def submit_lines(requests: Requests, options: SubmitOptions) -> None:
    """Register all lines; see `Bulk.register`."""
    require_database("JSON Lines")
    with_store(options.tenant, Bulk(requests, options).register)
