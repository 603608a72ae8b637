"""The dashboard and the alert rules ask only for what the exposition tells, with labels that it has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from durable_jobs.metrics.exposition import Snapshot, SnapshotCollector
from durable_jobs.metrics.figures import Figures, Live, RedisFigures, Window
from durable_jobs.queues import Queue

DEPLOYMENTS = Path(__file__).parents[3] / "deployments"
ALERTS = DEPLOYMENTS / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOYMENTS / "grafana" / "durable-jobs.json"
_SELECTED = re.compile(r"(durable_jobs_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r'(\w+)\s*(?:=~|!=|!~|=)\s*"')
_GROUPED = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
LIVE = {
    "pending": [{"queue": "work", "jobs": 3, "delayed": 1, "oldest_s": 2.5}],
    "running": [{"queue": "work", "jobs": 2, "stalled": 1}],
    "letters": [{"queue": "work", "job_type": "WORK", "jobs": 4, "oldest_s": 60}],
    "executors": {"silent": 0, "draining": 0, "idle": 1, "working": 2},
    "paused": [{"kind": "queue", "name": "work"}],
    "outbox": {"waiting": 1, "posted": 2, "oldest_s": 3},
    "at": 1_800_000_000,
}
ENDED = {
    "queue": "work",
    "job_type": "WORK",
    "succeeded": 3,
    "failed": 1,
    "cancelled": 0,
    "wait_s": [0.1, 0.2, 0.3],
    "run_s": [1, 2, 3],
}


def told() -> dict[str, set[str]]:
    """Return every name of the exposition with its labels."""
    figures = Figures(
        live=Live.model_validate(LIVE),
        recent=Window.model_validate({"window_s": 300, "types": [ENDED]}),
        took_s=0.01,
    )
    redis = RedisFigures(state="ok", latency_s=0.001, used_bytes=1, most_bytes=2)
    snapshot = Snapshot(figures, redis, {"work": Queue("work")})
    names: dict[str, set[str]] = {}
    for family in SnapshotCollector(snapshot).collect():
        assert family.samples, f"{family.name} has no samples"
        for sample in family.samples:
            names.setdefault(sample.name, set()).update(sample.labels)
    return names


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard_expressions() -> Iterator[str]:
    document = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in document["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            yield re.sub(r"label_values\((\w+), (\w+)\)", r'\1{\2=~".*"}', variable["query"]["query"])


EXPRESSIONS = [rule["expr"] for rule in alerts()] + list(dashboard_expressions())


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_is_told(expression: str) -> None:
    names = told()
    selected = _SELECTED.findall(expression)
    assert selected
    labels: set[str] = set()
    for name, matchers in selected:
        assert name in names, f"{name} is not told; there are {sorted(names)}"
        asked = set(_LABEL.findall(matchers))
        assert asked <= names[name], f"{name} has no labels {asked - names[name]}"
        labels |= names[name]
    for grouped in _GROUPED.findall(expression):
        asked = {label.strip() for label in grouped.split(",") if label.strip()}
        assert asked <= labels | ({"queue"} if "label_replace" in expression else set())


def test_everything_that_is_told_is_shown_or_watched() -> None:
    asked = {name for expression in EXPRESSIONS for name, _ in _SELECTED.findall(expression)}
    assert told().keys() - asked == {"durable_jobs_build_info", "durable_jobs_figures_read_seconds"}


def test_alerts_say_what_to_do() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["for"]
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        mine = {(at["x"] + i, at["y"] + j) for i in range(at["w"]) for j in range(at["h"])}
        assert not cells & mine
        assert at["x"] + at["w"] <= 24
        cells |= mine


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_itself_takes_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_a_database_only_that_is_told() -> None:
    collected = list(SnapshotCollector(Snapshot(None, None, {"work": Queue("work")})).collect())
    samples = {sample.name: sample.value for family in collected for sample in family.samples}
    assert samples == {"durable_jobs_up": 0, "durable_jobs_build_info": 1}
