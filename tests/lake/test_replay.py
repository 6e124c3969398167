"""Whatever is taken in and however far the stages have come: every query equals a replay in a dictionary."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pequod_lake import CacheLimits, IngestLimits, Lake, LakeSchema, MergePolicy, StageLimits
from pequod_lake.runs import check_runs

from tests.lake.replay import SCHEMA, Call, check_snapshot, ingest, random_calls


@pytest.mark.parametrize("seed", range(3))
def test_every_freshness_equals_a_replay_of_the_acknowledged_uploads(seed: int, folder: Path) -> None:
    run_schedule(folder, seed, steps=32)


def run_schedule(location: Path | str, seed: int, steps: int) -> None:
    """Take uploads, do steps and ask queries in a random order."""
    dice = random.Random(seed)
    schema = LakeSchema.parse(SCHEMA)
    uploads: list[list[Call]] = []
    policy = MergePolicy(
        fan_in=dice.choice([2, 3]),
        authority_ratio=0.5,
        authority_after_s=dice.choice([1e9, 0.0]),
        delta_ratio=dice.choice([0.125, 2.0]),
    )
    limits = StageLimits(
        slice_rows=dice.choice([4, 4_000_000]),
        range_rows=dice.choice([6, 1_000_000]),
        whole_ratio=dice.choice([0.25, 9.0]),
    )
    # Nothing is kept, or a row group now and then, or all.
    cache = CacheLimits(bytes_max=dice.choice([0, 1_000, 1 << 20]), files_max=dice.choice([1, 1_000]))
    with (
        Lake(location, cache=cache) as lake,
        lake.ingestor(IngestLimits(scu_age_s=0)) as ingestor,
    ):
        workers = [lake.worker(policy, limits) for _ in range(2)]
        for _ in range(steps):
            action = dice.random()
            if action < 0.4:
                calls = random_calls(dice, schema)
                assert ingest(ingestor, f"upload-{len(uploads)}", calls) == len(uploads) + 1
                uploads.append(calls)
            elif action < 0.8:
                dice.choice(workers).step()
                check_runs(lake.catalog.snapshot().runs)
            elif action < 0.85:
                lake.expire(dice.choice([0.0, 1e9]))
            else:
                check_all(lake, uploads, dice)
        check_all(lake, uploads, dice)
        workers[0].compact()
        check_all(lake, uploads, dice)
        assert lake.verify() == []
        lake.expire(0.0)
        assert lake.verify() == []
        check_all(lake, uploads, dice)
        for worker in workers:
            worker.close()


def check_all(lake: Lake, uploads: list[list[Call]], dice: random.Random) -> None:
    level = dice.choice(["newest", "authority", f"scu:{dice.randint(0, len(uploads))}", "0s", "1h"])
    with lake.snapshot(level) as snapshot:
        check_snapshot(snapshot, uploads, dice)
        lake.reader.blocks._check()
        assert level not in {"newest", "0s"} or snapshot.scu == len(uploads)
        if level.startswith("scu:"):
            assert snapshot.scu >= int(level[4:])
