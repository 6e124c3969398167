"""Some seeded runs; `make cluster-chaos` makes more."""

from pathlib import Path

import pytest

from tests.cluster_faults.chaos import run


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_tormented_cluster_shows_sessions_their_writes_and_is_exact_afterwards(
    seed: int, tmp_path: Path
) -> None:
    whole = await run(seed, tmp_path)
    assert whole.answered > 20
