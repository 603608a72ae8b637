"""Works one shift, and leaves its summary as an artifact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from uuid import UUID

import structlog
from prefect.runtime import flow_run

from durable_jobs.errors import StoreUnavailable
from durable_jobs.executor.served import UNDECLARED
from durable_jobs.executor.shift import Shift
from durable_jobs.executor.summary import ShiftSummary
from durable_jobs.states import JobState
from durable_jobs.tasks.artifacts import leave_artifact
from durable_jobs.tasks.beside import beside
from durable_jobs.tasks.charts import bar_chart
from durable_jobs.tasks.dispatching import dispatch_if_prefect_answers
from durable_jobs.tasks.publishing import publishing_meanwhile
from durable_jobs.tasks.runtimes import OpenRuntime
from durable_jobs.tasks.showing import show_as_task_run
from durable_jobs.tasks.stopping import stopped_by_signals
from durable_jobs.tasks.texts import cell

logger = structlog.get_logger(__name__)

DISPATCH_EVERY = timedelta(seconds=3)
SHOWN_STATES = (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)


async def work_a_shift(
    runtime: OpenRuntime, *, until_empty: bool = False, queues: Sequence[str] | None = None
) -> ShiftSummary:
    """Claim and execute jobs until relieved, told to stop, or (if asked) nothing is due.

    Without names of queues it serves all shared ones.
    """
    shift = Shift(
        runtime.store,
        runtime.registry,
        runtime.settings,
        queues=queues or None,
        until_empty=until_empty,
        flow_run_id=UUID(flow_run.id) if flow_run.id else None,
        show=show_as_task_run,
    )
    dispatching = nullcontext() if until_empty else beside(_dispatch_on(runtime), "dispatching")
    with stopped_by_signals(shift):
        async with dispatching, publishing_meanwhile(runtime.store):
            return await shift.run()


async def execute_alone(runtime: OpenRuntime, tenant: str, job_id: UUID) -> str:
    """Execute one job, alone in this process, and say how it ended."""
    shift = Shift(
        runtime.store,
        runtime.registry,
        runtime.settings,
        queues=(),
        only=(tenant, job_id),
        flow_run_id=UUID(flow_run.id) if flow_run.id else None,
        show=show_as_task_run,
    )
    with stopped_by_signals(shift):
        summary = await shift.run()
    if summary.undeclared:
        return f"given back: {UNDECLARED}"
    if summary.released:
        return "given back: the run was told to stop"
    return ", ".join(str(state) for _, state in summary.outcomes) or summary.ended_because


async def _dispatch_on(runtime: OpenRuntime) -> None:
    """Start flow runs for jobs that run alone, soon after they are due; the reconciler is the backstop."""
    while True:
        await asyncio.sleep(DISPATCH_EVERY.total_seconds())
        try:
            await dispatch_if_prefect_answers(runtime)
        except StoreUnavailable as error:
            logger.warning("jobs that run alone are not looked for", error=str(error))


async def leave_shift_summary(summary: ShiftSummary) -> None:
    """Leave the artifact `shift-summary`: what was done, by type, and what failed and why."""
    await leave_artifact("shift-summary", shift_markdown(summary), "What this shift did.")


def shift_markdown(summary: ShiftSummary) -> str:
    """Return the summary as markdown: a sentence, a chart, the same figures as a table, the failures."""
    types = sorted({job_type for job_type, _ in summary.outcomes})
    rows = [
        f"| {cell(t)} | " + " | ".join(str(summary.outcomes[t, state]) for state in SHOWN_STATES) + " |"
        for t in types
    ]
    parts = [
        f"**{summary.claimed}** jobs claimed, **{summary.count(JobState.SUCCEEDED)}** succeeded,"
        f" **{summary.count(JobState.FAILED)}** failed, **{summary.count(JobState.CANCELLED)}** cancelled."
        f" Ended because: {summary.ended_because}."
    ]
    if types:
        counts = [(t, [summary.outcomes[t, state] for state in SHOWN_STATES]) for t in types]
        parts.append(bar_chart("Jobs by type", [str(state) for state in SHOWN_STATES], counts))
        parts.append("\n".join(["| type | succeeded | failed | cancelled |", "|---|---:|---:|---:|", *rows]))
    if summary.not_shown:
        parts.append(
            f"{summary.shown} jobs are task runs of this flow run; {summary.not_shown} more came faster than"
            " DURABLE_JOBS_VISIBLE_TASK_RUNS_PER_SECOND and are only in job_history."
        )
    parts += [
        f"{count} {text}"
        for count, text in (
            (summary.released, "jobs were given back at the end."),
            (summary.late, "results came after the job had been given up; they changed nothing."),
        )
        if count
    ]
    if summary.undeclared:
        parts.append(
            f"{summary.undeclared.total()} jobs were given back because this worker does not declare their types"
            f" ({', '.join(cell(name) for name in sorted(summary.undeclared))}): name their modules in"
            " DURABLE_JOBS_MODULES, here or for a worker that is to execute them."
        )
    if summary.failures:
        parts.append("### Last failures\n\n| job | type | reason |\n|---|---|---|")
        parts[-1] += "".join(f"\n| `{i}` | {cell(t)} | {cell(r, 200)} |" for i, t, r in summary.failures)
    return "\n\n".join(parts) + "\n"
