"""Which Redis servers are watched, and the artifact that shows how they are."""

from __future__ import annotations

from collections.abc import Sequence

from prefect import get_run_logger, task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE

from durable_jobs.blocks.redis_target import load_targets
from durable_jobs.redis_health import CheckResult, HealthReport, RedisTarget
from durable_jobs.redis_health.target import NOTHING_TO_WATCH, target_of_settings
from durable_jobs.settings import Settings

ARTIFACT = "redis-health"


@task(cache_policy=NO_CACHE, persist_result=False)
async def find_redis_targets(blocks: Sequence[str]) -> list[RedisTarget]:
    """The targets of these blocks, or the one of the settings, or none.

    Raises:
        InvalidRedisTarget: there is no such block, or its connection cannot be understood.
    """
    settings = Settings.load()
    if blocks:
        return await load_targets(blocks, settings.environment)
    default = target_of_settings(settings)
    return [default] if default else []


@task(cache_policy=NO_CACHE, persist_result=False)
async def leave_health_artifact(reports: Sequence[HealthReport]) -> None:
    """Leave a table with each check of each target; without targets, a sentence that says so."""
    if not reports:
        get_run_logger().info(NOTHING_TO_WATCH)
        await acreate_markdown_artifact(NOTHING_TO_WATCH, key=ARTIFACT, description="Redis health")
        return
    rows = [_row(report, result) for report in reports for result in report.results]
    await acreate_table_artifact(rows, key=ARTIFACT, description=_summary(reports))


def _row(report: HealthReport, result: CheckResult) -> dict[str, object]:
    facts = ", ".join(f"{name} {value}" for name, value in result.facts.items() if value is not None)
    return {
        "target": report.target,
        "check": result.check.value,
        "outcome": result.outcome.value,
        "severity": result.severity.value if result.severity else "",
        "why": result.reason,
        "figures": facts,
    }


def _summary(reports: Sequence[HealthReport]) -> str:
    lines = []
    for report in reports:
        failed = ", ".join(result.check.value for result in report.failures) or "nothing"
        lines.append(f"**{report.target}** ({report.endpoint}, {report.environment}): failed: {failed}")
    return "\n\n".join(lines)
