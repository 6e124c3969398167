"""The native core lets go of what it was given: rounds of the same work leave nothing; `make test-leaks` does more."""

from __future__ import annotations

import gc
import sys
from typing import Final

from tests.native import leaks
from tests.native.core import hot

assert hot.INTERFACE
#: Caches fill meanwhile, ever more slowly.
_WARM: Final = 50
_ROUNDS: Final = 10
#: Python's own lists of free objects still grow by some 8 a round; what is lost for each row or call is more.
_BLOCKS_A_ROUND_MAX: Final = 14


def _left() -> tuple[int, int]:
    gc.collect()
    return sys.getallocatedblocks(), len(gc.get_objects())


def test_rounds_of_everything_leave_nothing() -> None:
    messages = leaks.messages()
    for _ in range(_WARM):
        leaks.work(messages)
        leaks.work_behind_a_database()
    blocks, objects = _left()
    for _ in range(_ROUNDS):
        leaks.work(messages)
        leaks.work_behind_a_database()
    blocks_left, objects_left = _left()
    assert objects_left - objects < _ROUNDS
    assert blocks_left - blocks < _BLOCKS_A_ROUND_MAX * _ROUNDS
