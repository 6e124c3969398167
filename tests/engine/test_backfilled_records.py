"""Backfills of joins over records: what is loaded is what a scan computes, whatever changes meanwhile."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from pequod_grammar import parse

from pequod.engine import Backfill, Engine, JoinSpec
from pequod.engine.testing import NaiveModel
from tests.engine.backfilling import draw_pieces

#: Joins over records that have two sources, a field in front, an array, and every operator.
RECORD_JOINS = [
    "t|<team>|<id> = copy p|<id> with team = <team>, stars > 1 as {stars, of}",
    "t|<tag>|<stars:2>|<id> = copy p|<id> with tags[] = <tag>, stars = <stars:2>",
    "t|<team>|<id> = check s|<of> with is_open = true copy p|<id> with of = <of>, team = <team> as stars",
    "t|<team>|<of> = check s|<of> with team = <team> sum p|<id> with of = <of> as stars",
    "t|<team> = check s|<of> with team = <team> max p|<id> with of = <of> as stars",
    "t|<tag> = count p|<id> with tags[] = <tag>",
    "t|<team> = copy p|<id> with team = <team> as stars",
]


def draw_row(random: Random) -> tuple[bytes, bytes | None]:
    """Draw a change of a table of few records, which mostly match."""
    team = random.choice(["red", "blue"])
    if random.random() < 0.3:
        value: dict[str, object] = {"team": team, "is_open": random.random() < 0.7}
        key = b"s|%d" % random.randrange(3)
    else:
        tags = random.sample(["a", "b", "c"], random.randrange(3))
        value = {"team": team, "stars": random.randrange(5), "of": random.randrange(3), "tags": tags}
        key = b"p|%d" % random.randrange(8)
    return key, None if random.random() < 0.25 else orjson.dumps(value)


class Both:
    """An engine and the model, which get the same changes."""

    def __init__(self, join: JoinSpec) -> None:
        self.engine, self.model = Engine(), NaiveModel()
        self.engine.add_joins([join])
        self.model.add(join)

    def begin(self, level: int, bytes_max: int = 1 << 20) -> Backfill:
        return self.engine.backfills.begin(
            "t", b"", None, self.engine.revision, level=level, record_bytes_max=bytes_max
        )

    def change(self, random: Random, count: int) -> None:
        for key, value in [draw_row(random) for _ in range(count)]:
            if value is None:
                self.engine.remove(key)
                self.model.remove(key)
            else:
                self.engine.put(key, value)
                self.model.put(key, value)

    def compare(self) -> None:
        self.engine._check()
        assert list(zip(*self.engine.scan(b"t|", b"t}"), strict=True)) == self.model.scan(b"t|", b"t}")


@pytest.mark.parametrize("join", RECORD_JOINS)
def test_records_that_change_between_begin_and_load_are_applied(join: str) -> None:
    for seed in range(12):
        random, both = Random(seed), Both(*parse(join))
        both.change(random, 20)
        backfill = both.begin(level=seed % 2)
        base = dict(both.model.base)
        both.change(random, 6)
        pieces = draw_pieces(random, backfill, base)
        half = len(pieces) // 2
        both.engine.backfills.load(backfill, pieces[:half])
        both.change(random, 6)
        both.engine.backfills.load(backfill, pieces[half:])
        both.change(random, 3)
        if backfill.plan.level == 0:
            assert not backfill.join.coverage.gaps(b"t|", b"t}")
        both.compare()


def test_plain_rows_count_as_memory_of_the_record() -> None:
    both = Both(*parse(RECORD_JOINS[1]))
    backfill = both.begin(level=1, bytes_max=2_000)
    tags = [f"{number:02}" for number in range(50)]
    both.engine.put(b"p|1", orjson.dumps({"tags": tags, "stars": 1}))
    assert backfill.ended is not None, "one value moves fifty rows"
    both.engine._check()
