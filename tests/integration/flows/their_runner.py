"""Serves the flows of somebody else: `python -m` this module, until it is killed."""

from __future__ import annotations

import asyncio

from prefect.runner import Runner

from tests.integration.flows import their_flows

TAGS = {
    their_flows.fails: ["durable", "durable:max-retries=2"],
    their_flows.crashes: ["durable"],
    their_flows.hangs: ["durable"],
    their_flows.never_works: ["durable", "durable:max-retries=1"],
}


async def serve() -> None:
    runner = Runner(name="theirs", query_seconds=1, limit=4)
    for flow, tags in TAGS.items():
        await runner.aadd_flow(flow, name="theirs", tags=tags)
    await runner.start()


if __name__ == "__main__":
    asyncio.run(serve())
