"""A reading is shared: one at a time, as long as it is fresh, never more than its share of the time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from durable_jobs.metrics.keeping import Kept

LONG = timedelta(seconds=30)
AT_ONCE = timedelta(0)


class Source:
    """Counts its readings; each ends when it is let."""

    def __init__(self) -> None:
        self.readings = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def read(self) -> int:
        self.readings += 1
        self.begun.set()
        number = self.readings
        await self.may_end.wait()
        return number


async def test_everybody_who_asks_meanwhile_gets_the_one_reading() -> None:
    source = Source()
    source.may_end.clear()
    kept = Kept(source.read, at_least=LONG, largest_share=1.0)
    asking = [asyncio.create_task(kept.get(wait=LONG)) for _ in range(20)]
    await source.begun.wait()
    source.may_end.set()
    assert await asyncio.gather(*asking) == [1] * 20
    assert await kept.get(wait=LONG) == 1
    assert source.readings == 1


async def test_who_is_cancelled_takes_the_reading_away_from_nobody() -> None:
    source = Source()
    source.may_end.clear()
    kept = Kept(source.read, at_least=LONG, largest_share=1.0)
    impatient = asyncio.create_task(kept.get(wait=LONG))
    patient = asyncio.create_task(kept.get(wait=LONG))
    await source.begun.wait()
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    source.may_end.set()
    assert await patient == 1


async def test_a_late_reading_gives_the_value_before() -> None:
    source = Source()
    kept = Kept(source.read, at_least=timedelta(microseconds=1), largest_share=1.0)
    assert await kept.get(wait=LONG) == 1
    source.may_end.clear()
    await asyncio.sleep(0.01)  # the value is stale behind a microsecond
    assert await kept.get(wait=AT_ONCE) == 1
    await kept.close()


async def test_before_the_first_reading_there_is_none() -> None:
    source = Source()
    source.may_end.clear()
    kept = Kept(source.read, at_least=LONG, largest_share=1.0)
    assert await kept.get(wait=AT_ONCE) is None
    await kept.close()


async def test_what_is_slow_to_read_is_read_seldom() -> None:
    readings = 0

    async def read() -> int:
        nonlocal readings
        readings += 1
        await asyncio.sleep(0.2)  # what is measured
        return readings

    # A hundredth: 0.2 s of reading are kept for at least 20 s.
    kept = Kept(read, at_least=timedelta(microseconds=1), largest_share=0.01)
    assert await kept.get(wait=LONG) == 1
    for _ in range(50):
        await asyncio.sleep(0.01)
        assert await kept.get(wait=LONG) == 1
    assert readings == 1
