"""What the command `durable-jobs redis` loads blocks with: from the Prefect server that the settings name."""

from __future__ import annotations

from collections.abc import Sequence

from durable_jobs.blocks.redis_target import load_targets
from durable_jobs.deployments.deploy_prefect import named_server
from durable_jobs.redis_health import RedisTarget
from durable_jobs.settings import Environment


async def load_named_targets(names: Sequence[str], environment: Environment) -> list[RedisTarget]:
    """Load the targets of blocks; without a server Prefect would start a temporary one, which has no blocks.

    Raises:
        NoPrefectServer, PrefectUnavailable, PrefectRefused: the server cannot be asked.
        InvalidRedisTarget: there is no such block, or its connection cannot be understood.
    """
    async with named_server():
        return await load_targets(names, environment)
