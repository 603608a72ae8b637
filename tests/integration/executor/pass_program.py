"""The program of a test's reconciler: one pass, to be killed in the middle of it."""

from __future__ import annotations

import asyncio

from durable_jobs.reconciling import Reconciler
from durable_jobs.runtime import current_runtime


async def main() -> None:
    """Run one pass."""
    runtime = current_runtime()
    await Reconciler(await runtime.store(), runtime.registry, runtime.settings).run()
    await runtime.close()


if __name__ == "__main__":
    asyncio.run(main())
