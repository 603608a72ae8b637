"""How failures of a deployment are treated: said by its tags, or for it in one Prefect variable.

The variable wins, so that a person on duty can change a policy without a new deployment. What cannot be read
is told and does not count: a misspelt tag must not keep failures from being kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

TAG = "durable"
VARIABLE = "durable_jobs_policies"
_FIELDS = {
    "max-retries": "max_retries",
    "backoff": "retry_backoff",
    "timeout": "timeout",
    "not-retryable": "retryable",
}


def _seconds(value: Any) -> Any:
    """Accept plain seconds as text too; pydantic itself takes ISO 8601."""
    return float(value) if isinstance(value, str) and value.replace(".", "", 1).isdigit() else value


Duration = Annotated[timedelta, BeforeValidator(_seconds), Field(gt=timedelta(0))]


class RunPolicy(BaseModel):
    """How failed runs of one deployment are treated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_retries: int = Field(3, ge=0, description="How many new runs are made of a failed one.")
    retry_backoff: Duration | None = Field(
        None, description="How long the first retry waits; twice as long each further one, a day at most."
    )
    retryable: bool = Field(True, description="False: a failure is kept and told, and never retried.")
    timeout: Duration | None = Field(
        None, description="A run that goes on for longer hangs: it is cancelled and has failed."
    )

    def as_json(self) -> dict[str, Any]:
        """Return it as people see it; durations are ISO 8601."""
        shown = self.model_dump(mode="json")
        names = {
            "max_retries": "maxRetries",
            "retry_backoff": "retryBackoff",
            "retryable": "retryable",
            "timeout": "timeout",
        }
        return {names[name]: value for name, value in shown.items()}


class ReadPolicy(BaseModel):
    """A policy, and what was said that cannot be read."""

    policy: RunPolicy
    faults: tuple[str, ...] = ()


def read_policy(deployment: str, tags: Iterable[str], variable: Any, *, tag: str = TAG) -> ReadPolicy:
    """Return the policy of a deployment.

    Args:
        deployment: its name, FLOW/DEPLOYMENT.
        tags: its tags, such as `durable:max-retries=5`, `durable:backoff=PT5M`, `durable:not-retryable`.
        variable: the value of the Prefect variable: an object by deployment's name.
        tag: what the tags begin with.
    """
    faults: list[str] = []
    said: dict[str, Any] = {}
    for one in sorted(tags):
        if not one.startswith(f"{tag}:"):
            continue
        name, _, value = one.removeprefix(f"{tag}:").partition("=")
        field = _FIELDS.get(name)
        if field is None:
            faults.append(f"tag {one!r}: {name!r} is not one of {', '.join(_FIELDS)}")
        else:
            _take(said, {field: value if field != "retryable" else False}, f"tag {one!r}", faults)
    if isinstance(variable, Mapping) and isinstance(own := variable.get(deployment), Mapping):
        for field, value in own.items():
            _take(said, {str(field): value}, f"variable {VARIABLE}, {deployment}.{field}", faults)
    return ReadPolicy(policy=RunPolicy(**said), faults=tuple(faults))


def _take(said: dict[str, Any], part: dict[str, Any], where: str, faults: list[str]) -> None:
    try:
        RunPolicy(**part)
    except ValidationError as error:
        faults.append(f"{where}: {error.errors(include_url=False)[0]['msg']}")
    else:
        said.update(part)
