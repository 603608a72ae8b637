"""An executor as a process of its own: one shift until nothing is due. Run as a module, and killed."""

from __future__ import annotations

import asyncio

from durable_jobs.executor.shift import Shift
from durable_jobs.runtime import current_runtime


async def main() -> None:
    runtime = current_runtime()
    store = await runtime.store()
    try:
        await Shift(store, runtime.registry, runtime.settings, until_empty=True, queues=["steps"]).run()
    finally:
        await runtime.close()


if __name__ == "__main__":
    asyncio.run(main())
