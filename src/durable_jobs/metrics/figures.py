"""What is known at one moment: counts, ages and quantiles in seconds, nothing of any job or tenant.

Names of queues and types are those that the code declares; everything else is `(undeclared)`.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

QUANTILES = (0.5, 0.95, 0.99)
UNDECLARED = "(undeclared)"


class _Figures(BaseModel):
    model_config = ConfigDict(frozen=True)


class Pending(_Figures):
    """What waits in a queue."""

    queue: str
    jobs: int
    delayed: int
    oldest_s: float


class Running(_Figures):
    """What runs in a queue; stalled is what is past its deadline, or whose executor is silent."""

    queue: str
    jobs: int
    stalled: int


class Letters(_Figures):
    """Dead letters of a queue and type."""

    queue: str
    job_type: str
    jobs: int
    oldest_s: float


class Paused(_Figures):
    """A queue or a type that is held back."""

    kind: str
    name: str


class Outbox(_Figures):
    """Events that Prefect is not known to have: not yet sent, and sent but not yet read back."""

    waiting: int
    posted: int
    oldest_s: float


class Live(_Figures):
    """What is live now."""

    pending: list[Pending]
    running: list[Running]
    letters: list[Letters]
    executors: dict[str, int]
    paused: list[Paused]
    outbox: Outbox
    at: float


class Recent(_Figures):
    """How executions of a type ended within the window; the quantiles are those of QUANTILES."""

    queue: str
    job_type: str
    succeeded: int
    failed: int
    cancelled: int
    wait_s: list[float] | None
    run_s: list[float] | None


class Window(_Figures):
    """What ended lately, and how long that is."""

    window_s: float
    types: list[Recent]


class Figures(_Figures):
    """One reading."""

    live: Live
    recent: Window
    took_s: float


class RedisFigures(_Figures):
    """One look at Redis; what could not be seen is None, and then the state is failed or unknown."""

    state: str
    latency_s: float | None = None
    used_bytes: int | None = None
    most_bytes: int | None = None
