"""The artifacts about dead letters: what failed and why, what became of it, and what a person can do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from prefect.artifacts import acreate_markdown_artifact
from prefect.utilities.urls import url_for

from durable_jobs.dead_letters.health import LetterHealth
from durable_jobs.dead_letters.retrying import TenantRetries
from durable_jobs.dead_letters.store import LetterCount
from durable_jobs.jobs import Job
from durable_jobs.tasks.charts import bar_chart
from durable_jobs.tasks.collected_shown import policies_markdown
from durable_jobs.tasks.texts import cell
from durable_jobs.tasks.watched_deployments import Watched

_HEADS = (
    "| tenant | job | type | reason | age | attempts left | now | run |\n|---|---|---|---|---|---:|---|---|"
)
_SERIES = ("dead letters", "failed in the last hour")


async def leave_letters_artifact(
    letters: Sequence[Job],
    counts: dict[str, list[LetterCount]],
    done: Sequence[TenantRetries],
    health: LetterHealth,
    watched: Sequence[Watched] = (),
) -> None:
    """Leave the artifact `dead-letters`; `watched` are the deployments whose failed runs are kept."""
    await acreate_markdown_artifact(
        key="dead-letters",
        markdown=letters_markdown(letters, counts, done, health, watched),
        description="What failed and may be retried, and what this pass did.",
    )


async def leave_retry_artifact(letters: Sequence[Job], done: TenantRetries | None, more: bool) -> None:
    """Leave the artifact `retry-jobs`: what a person's retry did, or would do."""
    said = "**Dry run: nothing was changed.** These jobs fit:" if done is None else _sentence([done])
    parts = [said, letters_table(letters, [done] if done else [])]
    if more:
        parts.append("More jobs fit than are shown here.")
    await acreate_markdown_artifact(
        key="retry-jobs", markdown="\n\n".join(parts) + "\n", description="Retries asked for by a person."
    )


def letters_markdown(
    letters: Sequence[Job],
    counts: dict[str, list[LetterCount]],
    done: Sequence[TenantRetries],
    health: LetterHealth,
    watched: Sequence[Watched] = (),
) -> str:
    """Return the text: a sentence, a chart, the same figures as a table, the letters, what went wrong, policies."""
    parts = [_sentence(done), f"{health.letters:,} dead letters before it: {health.why}."]
    by_type = _by_type(counts)
    if by_type:
        parts.append(bar_chart("Failures by type", _SERIES, by_type))
        rows = [f"| {cell(t)} | {letters_} | {failed} |" for t, (letters_, failed) in by_type]
        parts.append(
            "\n".join(["| type | dead letters | failed in the last hour |", "|---|---:|---:|", *rows])
        )
    if letters:
        parts.append(f"### The oldest {len(letters)}\n\n{letters_table(letters, done)}")
    parts += [
        f"**Tenant {cell(one.tenant)}**: {cell(one.fault, 300)}" for one in done if one.fault is not None
    ]
    full = sorted(set().union(*(one.full for one in done)))
    if full:
        parts.append(f"Without room, so their jobs wait for the next pass: {', '.join(map(cell, full))}.")
    if watched:
        parts.append(policies_markdown(watched))
    parts.append(
        "Once the cause is fixed, what was given up comes back with `durable-jobs resubmit --type TYPE`;"
        " one job's whole story: `durable-jobs get ID --chain`."
    )
    return "\n\n".join(parts) + "\n"


def letters_table(letters: Sequence[Job], done: Sequence[TenantRetries]) -> str:
    """Return the jobs as a table, with what became of each."""
    became = _outcomes(done)
    rows = [
        f"| {cell(job.tenant_id)} | `{job.job_id}` | {cell(job.job_type)} | {cell(job.failed_reason or '', 200)} |"
        f" {_age(job)} | {max(0, job.max_retries - job.retry_count)} |"
        f" {became.get(str(job.job_id)) or _without_outcome(job, done)} | {_link(job)} |"
        for job in letters
    ]
    return "\n".join([_HEADS, *rows])


def _sentence(done: Iterable[TenantRetries]) -> str:
    tenants = list(done)
    return (
        f"**{sum(len(one.retried) for one in tenants)}** jobs retried,"
        f" **{sum(one.abandoned.total() for one in tenants)}** abandoned at their limit,"
        f" **{sum(len(one.refused) for one in tenants)}** not retryable any more."
    )


def _by_type(counts: dict[str, list[LetterCount]]) -> list[tuple[str, tuple[int, int]]]:
    letters: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for of_tenant in counts.values():
        for count in of_tenant:
            letters[count.job_type] += count.letters
            failed[count.job_type] += count.failed
    types = sorted(t for t in letters if letters[t] or failed[t])
    return [(t, (letters[t], failed[t])) for t in types]


def _outcomes(done: Sequence[TenantRetries]) -> dict[str, str]:
    became = {str(r.letter.job_id): f"retried as `{r.child_id}`" for one in done for r in one.retried}
    return became | {
        str(r.letter.job_id): f"not retryable: {cell(r.reason or '', 120)}"
        for one in done
        for r in one.refused
    }


def _without_outcome(job: Job, done: Sequence[TenantRetries]) -> str:
    if not done:
        return "abandoned when retried" if job.retry_count >= job.max_retries else "would be retried"
    return "abandoned" if job.retry_count >= job.max_retries else "waits for the next pass"


def _age(job: Job) -> str:
    age = datetime.now(UTC) - (job.completed_at or job.updated_at)
    return str(timedelta(seconds=max(0, int(age.total_seconds()))))


def _link(job: Job) -> str:
    for kind, run_id in (("task-run", job.task_run_id), ("flow-run", job.flow_run_id)):
        if run_id is not None and (url := url_for(kind, obj_id=run_id)):
            return f"[{kind}]({url})"
    return ""
