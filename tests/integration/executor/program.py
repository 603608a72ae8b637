"""The program of a test's shift: works until it is told to stop, as a flow run does, without Prefect."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from uuid import UUID

from durable_jobs.executor.execution import Stop
from durable_jobs.executor.shift import Shift
from durable_jobs.runtime import current_runtime


async def main(options: dict[str, object]) -> None:
    """Run one shift with the options given as JSON."""
    runtime = current_runtime()
    store = await runtime.store()
    only = options.pop("only", None)
    shift = Shift(
        store,
        runtime.registry,
        runtime.settings,
        only=(str(only[0]), UUID(only[1])) if isinstance(only, list) else None,
        **options,  # type: ignore[arg-type]
    )
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, shift.leave, "told to stop", Stop.SHUTDOWN)
    summary = await shift.run()
    await runtime.close()
    sys.stdout.write(json.dumps({"because": summary.ended_because, "claimed": summary.claimed}) + "\n")


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
