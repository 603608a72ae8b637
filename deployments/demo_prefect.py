"""What the demo asks of its Prefect server, as a person in the UI would: run this now, show me that event."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import httpx

_OVER = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")
_LATELY = timedelta(hours=1)


class DemoPrefect(NamedTuple):
    """A Prefect server without a login."""

    api_url: str
    ui_url: str

    async def run_now(self, deployment: str) -> UUID:
        """Start a run of a deployment, named `flow/deployment`, and return its id."""
        found = await self._ask("GET", f"deployments/name/{deployment}")
        return UUID((await self._ask("POST", f"deployments/{found['id']}/create_flow_run", {}))["id"])

    async def is_over(self, flow_run: UUID) -> bool:
        """Tell whether a flow run has ended, well or not."""
        return (await self._ask("GET", f"flow_runs/{flow_run}"))["state_type"] in _OVER

    def run_page(self, flow_run: UUID) -> str:
        """Return the address of a flow run's page."""
        return f"{self.ui_url}/runs/flow-run/{flow_run}"

    async def event_page(self, job_id: UUID, event: str) -> str | None:
        """Return the address of the page of a job's event, or None while Prefect does not show it."""
        until = datetime.now(UTC) + timedelta(minutes=1)
        wanted = {
            "occurred": {"since": (until - _LATELY).isoformat(), "until": until.isoformat()},
            "event": {"name": [event]},
            "resource": {"id": [f"durable-jobs.job.{job_id}"]},
        }
        events = (await self._ask("POST", "events/filter", {"filter": wanted}))["events"]
        if not events:
            return None
        return f"{self.ui_url}/events/event/{events[0]['occurred'][:10]}/{events[0]['id']}"

    async def _ask(self, method: str, path: str, body: Any = None) -> Any:
        async with httpx.AsyncClient(timeout=30) as client:
            answer = await client.request(method, f"{self.api_url}/{path}", json=body)
        return answer.raise_for_status().json()
