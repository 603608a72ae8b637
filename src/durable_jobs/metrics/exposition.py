"""Figures as Prometheus families; a label's value is a declared name, so their number is bounded.

What cannot be told is left out, except for what says so: `durable_jobs_up` and `durable_jobs_redis_state`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from durable_jobs.metrics.figures import (
    QUANTILES,
    Figures,
    Live,
    Outbox,
    Pending,
    RedisFigures,
    Running,
    Window,
)
from durable_jobs.queues import Queue

Values = dict[tuple[str, ...], float]
"""Samples of a family by the values of its labels."""

_PREFIX = "durable_jobs_"
_BY_QUEUE = ("queue",)
_BY_TYPE = ("queue", "job_type")
_REDIS_STATES = ("ok", "failed", "unknown")


class Snapshot(NamedTuple):
    """What one scrape tells; figures are None when the database does not answer."""

    figures: Figures | None
    redis: RedisFigures | None
    queues: Mapping[str, Queue]


class SnapshotCollector(Collector):
    """Gives one snapshot to a registry of its own."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Keep what is told."""
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        figures, redis, queues = self._snapshot
        yield _one("up", "Whether the jobs database gives its figures.", float(figures is not None))
        yield _gauge(
            "build_info", "The version of durable-jobs.", ("version",), {(version("durable-jobs"),): 1.0}
        )
        if figures is not None:
            yield from _live(figures.live, queues)
            yield from _recent(figures.recent)
            yield _one(
                "figures_timestamp_seconds", "When the figures were read (Unix time).", figures.live.at
            )
            yield _one("figures_read_seconds", "How long it took to read the figures.", figures.took_s)
        if redis is not None:
            yield from _redis(redis)


def _live(live: Live, queues: Mapping[str, Queue]) -> Iterator[Metric]:
    yield from _by_queue(live, queues)
    yield from _dead_letters(live)
    yield from _duty(live)
    yield from _outbox(live.outbox)
    yield from _bounds(queues)


def _by_queue(live: Live, queues: Mapping[str, Queue]) -> Iterator[Metric]:
    pending = {found.queue: found for found in live.pending}
    running = {found.queue: found for found in live.running}
    failed = Counter[str]()
    for letters in live.letters:
        failed[letters.queue] += letters.jobs
    # A queue without jobs has zeros: a series that comes and goes cannot be watched.
    for name in sorted(queues.keys() | pending.keys() | running.keys() | failed.keys()):
        pending.setdefault(name, Pending(queue=name, jobs=0, delayed=0, oldest_s=0))
        running.setdefault(name, Running(queue=name, jobs=0, stalled=0))
    depths: Values = {(name, "PENDING"): found.jobs for name, found in pending.items()}
    depths |= {(name, "RUNNING"): found.jobs for name, found in running.items()}
    depths |= {(name, "FAILED"): failed[name] for name in pending}
    yield _gauge("jobs", "Jobs that wait, run or are dead letters.", ("queue", "state"), depths)
    delayed: Values = {(name,): found.delayed for name, found in pending.items()}
    yield _gauge("delayed_jobs", "Waiting jobs whose time has not come.", _BY_QUEUE, delayed)
    ages: Values = {(name,): found.oldest_s for name, found in pending.items()}
    about = "For how long the oldest job that is due has waited; 0 when none waits."
    yield _gauge("oldest_pending_age_seconds", about, _BY_QUEUE, ages)
    stalled: Values = {(name,): found.stalled for name, found in running.items()}
    about = "Running jobs past their deadline or whose executor is silent."
    yield _gauge("stalled_jobs", about, _BY_QUEUE, stalled)


def _dead_letters(live: Live) -> Iterator[Metric]:
    letters: Values = {(found.queue, found.job_type): found.jobs for found in live.letters}
    yield _gauge("dead_letters", "Failed jobs that may be retried or resubmitted.", _BY_TYPE, letters)
    about = "For how long the oldest dead letter has been one; 0 without any."
    oldest = max((found.oldest_s for found in live.letters), default=0.0)
    yield _one("oldest_dead_letter_age_seconds", about, oldest)


def _duty(live: Live) -> Iterator[Metric]:
    executors: Values = {(state,): n for state, n in sorted(live.executors.items())}
    about = "Executors by what they do; silent ones have missed their beats."
    yield _gauge("executors", about, ("state",), executors)
    paused: Values = {(found.kind, found.name): 1.0 for found in live.paused}
    yield _gauge("paused", "Queues and job types that are held back.", ("kind", "name"), paused)


def _outbox(outbox: Outbox) -> Iterator[Metric]:
    stages: Values = {("waiting",): outbox.waiting, ("posted",): outbox.posted}
    yield _gauge("outbox_events", "Events that Prefect is not known to have.", ("stage",), stages)
    about = "For how long the oldest such event has waited."
    yield _one("outbox_oldest_age_seconds", about, outbox.oldest_s)


def _bounds(queues: Mapping[str, Queue]) -> Iterator[Metric]:
    at_once: Values = {(name,): queue.concurrency for name, queue in queues.items()}
    yield _gauge("queue_concurrency", "How many jobs of a queue may run at once.", _BY_QUEUE, at_once)
    waiting: Values = {(n,): q.max_pending for n, q in queues.items() if q.max_pending is not None}
    about = "How many jobs may wait in a queue; no series when there is no bound."
    yield _gauge("queue_max_pending", about, _BY_QUEUE, waiting)


def _recent(recent: Window) -> Iterator[Metric]:
    yield _one("recent_window_seconds", "How far back the recent figures reach.", recent.window_s)
    outcomes: Values = {}
    ratios: Values = {}
    waits: Values = {}
    runs: Values = {}
    for ended in recent.types:
        of = (ended.queue, ended.job_type)
        outcomes |= {
            (*of, "succeeded"): ended.succeeded,
            (*of, "failed"): ended.failed,
            (*of, "cancelled"): ended.cancelled,
        }
        if executed := ended.succeeded + ended.failed:
            ratios[of] = ended.failed / executed
        waits |= _by_quantile(of, ended.wait_s)
        runs |= _by_quantile(of, ended.run_s)
    yield _gauge("recent_jobs", "Jobs that ended within the window.", (*_BY_TYPE, "outcome"), outcomes)
    yield _gauge("failure_ratio", "Share of the recent executions that failed (0 to 1).", _BY_TYPE, ratios)
    yield _summary("wait_seconds", "From being due to being started, of recent jobs.", waits)
    yield _summary("run_seconds", "From the start to the end, of recent jobs.", runs)


def _by_quantile(of: tuple[str, str], values: list[float] | None) -> Values:
    return {(*of, f"{q:g}"): value for q, value in zip(QUANTILES, values or (), strict=False)}


def _redis(redis: RedisFigures) -> Iterator[Metric]:
    states: Values = {(state,): float(state == redis.state) for state in _REDIS_STATES}
    yield _gauge("redis_state", "1 for the state in which Redis was seen last.", ("state",), states)
    if redis.latency_s is not None:
        yield _one("redis_latency_seconds", "How long a PING took.", redis.latency_s)
    if redis.used_bytes is not None:
        yield _one("redis_memory_used_bytes", "Memory that Redis uses.", redis.used_bytes)
    if redis.most_bytes is not None:
        yield _one("redis_memory_max_bytes", "Redis' maxmemory; 0 when it has none.", redis.most_bytes)


def _gauge(name: str, about: str, labels: Sequence[str], values: Values) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_PREFIX}{name}", about, labels=labels)
    for of, value in values.items():
        family.add_metric(list(of), value)
    return family


def _summary(name: str, about: str, values: Values) -> Metric:
    """Return quantiles only: a window's count and sum would fall, and those of a summary may not."""
    family = Metric(f"{_PREFIX}{name}", about, "summary")
    for of, value in values.items():
        labels = dict(zip((*_BY_TYPE, "quantile"), of, strict=True))
        family.add_sample(family.name, labels, value)
    return family


def _one(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{_PREFIX}{name}", about, value=value)
