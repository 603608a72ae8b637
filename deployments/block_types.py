"""The block types that people fill in themselves, made known to the Prefect server so that its forms offer them."""

from __future__ import annotations

from durable_jobs.blocks.redis_target import RedisTargetBlock


async def offer_block_types() -> None:
    """Register the types, or bring them up to date; safe to repeat."""
    await RedisTargetBlock.aregister_type_and_schema()
