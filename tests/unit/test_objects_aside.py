"""What exists is set aside while a shift works, and nothing of it stays so."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from durable_jobs.executor.objects_aside import objects_aside


@pytest.fixture(autouse=True)
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_inside_the_block_only() -> None:
    with objects_aside():
        assert gc.get_freeze_count() > 1_000
        mine: list[object] = []
        mine.append(mine)
        assert any(one is mine for one in gc.get_objects())
    assert gc.get_freeze_count() == 0


def test_also_behind_a_failure() -> None:
    with pytest.raises(LookupError), objects_aside():
        raise LookupError
    assert gc.get_freeze_count() == 0


def test_what_a_program_has_set_aside_itself_stays_so() -> None:
    gc.freeze()
    with objects_aside():
        pass
    assert gc.get_freeze_count() > 0
