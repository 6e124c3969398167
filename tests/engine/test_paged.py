"""Paged tables: some of their rows are on a disk alone. Reads, writes and evictions are exact all the same."""

from random import Random
from unittest.mock import patch

import pytest

from pequod.engine.base import presence
from tests.engine.paging import PagedWalk


@pytest.mark.parametrize("seed", range(40))
def test_walks_agree_with_the_model(seed: int) -> None:
    with patch.object(presence, "PART_ROWS_MAX", 2):
        walk = PagedWalk(Random(seed))
        for number in range(120):
            walk.step()
            if number % 8 == 0:
                walk.engine._check()
        walk.engine._check()
        walk.end()
