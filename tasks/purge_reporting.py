"""What a purge took, what stays and why, and history by age, as markdown."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from durable_jobs.retention import Look, PurgeRun
from durable_jobs.tasks.charts import bar_chart
from durable_jobs.tasks.texts import cell

MOST_ROWS = 50


def purge_markdown(run: PurgeRun, before: Look, fault: str | None) -> str:
    """Return the artifact's text; `before` is the run's first look."""
    parts = [_summary(run, fault), _history(run, before), _gone(run, before), _stays(run, before)]
    if run.redis.endpoint is not None:
        parts.append(_redis(run))
    return "\n\n".join(part for part in parts if part) + "\n"


def _summary(run: PurgeRun, fault: str | None) -> str:
    figures = run.figures()
    what = (
        f"**{figures['jobs']:,}** jobs ({size(figures['bytes'])}), **{figures['events']:,}** events"
        f" and **{figures['effects']:,}** effects"
    )
    if run.dry_run:
        return f"A dry run: nothing went. A purge now would take {what}."
    proof = (
        "Proved: nothing due is left, and nothing else went."
        if fault is None
        else f"**Failed.** {cell(fault, 2_000)}"
    )
    return f"{what} went.\n\n{proof}"


def _history(run: PurgeRun, before: Look) -> str:
    names = age_names(before)
    then, now = before.by_age(), (run.after or before).by_age()
    due = range(before.ages.due_buckets)
    rows = [
        (name, [now[bucket], max(then[bucket] - now[bucket], 0) if bucket in due else 0])
        for bucket, name in reversed(list(enumerate(names)))
    ]
    table = "\n".join(f"| {name} | {stays:,} | {went:,} |" for name, (stays, went) in rows)
    chart = bar_chart("Ended jobs by age", ["stays", "went"], rows)
    return f"### Ended jobs by age\n\n{chart}\n\n| age | stays | went |\n|---|---:|---:|\n{table}"


def age_names(look: Look) -> list[str]:
    """Return a name for each bucket of a look's ages, oldest first; the last ended during the purge."""
    ages = [_days(look.limits.now - edge) for edge in look.ages.edges]
    between = [f"{younger} to {older} days" for older, younger in pairwise(ages)]
    return [f"over {ages[0]} days", *between, "since the purge began"]


def _gone(run: PurgeRun, before: Look) -> str:
    if run.dry_run:
        rows = [
            (str(tenant), job_type, state, group.jobs)
            for tenant, found in before.tenants.items()
            for (job_type, state), group in found.groups.items()
        ]
    else:
        rows = [(*key, jobs) for key, jobs in run.purged.jobs.items()]
    if not rows:
        return ""
    rows.sort(key=lambda row: row[3], reverse=True)
    shown = "\n".join(
        f"| {cell(t)} | {cell(kind)} | {state} | {n:,} |" for t, kind, state, n in rows[:MOST_ROWS]
    )
    more = f"\n\n{len(rows) - MOST_ROWS} more rows are not shown." if len(rows) > MOST_ROWS else ""
    title = "What would go" if run.dry_run else "What went"
    return f"### {title}\n\n| tenant | type | state | jobs |\n|---|---|---|---:|\n{shown}{more}"


def _stays(run: PurgeRun, before: Look) -> str:
    look = run.after or before
    ages = look.by_age()
    young = sum(ages[bucket] for bucket in range(look.ages.due_buckets, len(look.ages.edges) + 1))
    rows = [
        ("jobs that wait or run", run.live, "never go"),
        (f"jobs that ended in the last {_days(run.periods.jobs)} days", young, "too young"),
        ("older jobs of chains", look.total("kept_with_chain"), "a retry of theirs is not due yet"),
        ("younger effects", look.young_effects, "too young"),
        ("older effects", look.total("effects_kept"), "their chain is still there"),
    ]
    if run.after is not None:
        rows.append(("jobs, effects and events that are due", _left(run.after), "see above"))
    table = "\n".join(f"| {what} | {n:,} | {why} |" for what, n, why in rows)
    return f"### What stays\n\n| what | how many | why |\n|---|---:|---|\n{table}"


def _left(look: Look) -> int:
    return look.total("due") + look.total("effects_due") + look.total("events_due")


def _redis(run: PurgeRun) -> str:
    rows = "\n".join(
        f"| {cell(queue)} | {state} | {count.gone:,} | {count.kept:,} |"
        for (queue, state), count in sorted(run.redis.counts.items())
    )
    head = f"| queue | state | {'would go' if run.dry_run else 'went'} | kept for a parent |\n|---|---|---:|---:|"
    parts = [f"### Redis at {run.redis.endpoint}", run.redis.fault or ""]
    parts.append(f"{head}\n{rows}" if rows else "No queue of BullMQ there.")
    return "\n\n".join(part for part in parts if part)


def size(count: float) -> str:
    """Return a number of bytes as people read it."""
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit in ("kB", "MB", "GB"):
        count /= 1000
        if count < 1000:
            return f"{count:.1f} {unit}"
    return f"{count / 1000:,.1f} TB"


def _days(length: timedelta) -> str:
    return f"{length / timedelta(days=1):g}"
