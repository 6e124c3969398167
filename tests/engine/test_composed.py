"""Values with fields of several sources: walks over a few shapes of joins, whose keys find each other often."""

from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine import Change, Engine
from tests.engine.draw_transactions import draw_transaction
from tests.engine.earlier import draw_earlier
from tests.engine.random_walk import draw_add, draw_backfill_step, small_limits
from tests.engine.shapes import SHAPES, draw_output_range, draw_row_key, draw_row_value
from tests.engine.walker import Step, Walker


def _step(random: Random, walker: Walker) -> Step:
    chance = random.random()
    if chance < 0.4:
        return Step("put", (draw_row_key(random), draw_row_value(random)))
    if chance < 0.52:
        return Step("remove", (draw_row_key(random),))
    if chance < 0.56:
        rows = {draw_row_key(random): draw_row_value(random) for _ in range(4)}
        return Step("put_all", (tuple(sorted(rows.items())),))
    if chance < 0.58:
        return Step("transact", (draw_transaction(random, walker.specs, walker.model.base),))
    if chance < 0.6:
        return draw_add(random, walker)
    if chance < 0.63:
        return Step("watch", draw_output_range(random))
    if chance < 0.7:
        return Step("settle", (random.randrange(5),))
    if chance < 0.72:
        return Step("evict", (1,))
    if chance < 0.74:
        return Step("invalidate", draw_output_range(random))
    if walker.backed and chance < 0.77:
        return Step(random.choice(["forget", "load"]), random.choice([(b"l|", b"l}"), (b"l|a", b"l|b"), (b"m|", b"s")]))
    if chance < 0.8:
        return draw_backfill_step(random, walker)
    return Step("scan", (*draw_output_range(random), random.choice([None, None, 1]), random.random() < 0.2))


def walk(seed: int, joins: str, step_count: int) -> None:
    """Walk over some joins; the first steps are rows, so that there are outputs."""
    random = Random(seed)
    with small_limits(random):
        walker, specs = Walker(), parse(joins)
        if random.random() < 0.3:
            walker.take(Step("back", (b"l", b"m")))
        script = [*draw_earlier(random, specs), *(Step("add", (spec,)) for spec in specs)]
        script += [Step("put", (draw_row_key(random), draw_row_value(random))) for _ in range(8)]
        for step in script:
            walker.take(step)
        for _ in range(step_count):
            walker.take(_step(random, walker))
        for table in (b"o", b"p", b"q", b"full"):
            walker.take(Step("scan", (table + b"|", table + b"}", None, False)))


@pytest.mark.parametrize("shape", SHAPES)
def test_walks_over_fields_of_several_sources_agree(shape: str) -> None:
    for seed in range(6):
        walk(seed, SHAPES[shape], 60)


def _installed(joins: str, rows: dict[str, str]) -> Engine:
    engine = Engine()
    engine.add_joins(parse(joins))
    for key, value in rows.items():
        engine.put(key.encode(), value.encode())
    return engine


@pytest.mark.parametrize("shape", ["decided", "outer", "kept"])
def test_a_change_of_a_checked_field_is_one_change_of_a_row(shape: str) -> None:
    rows = {"r|ann|7": '{"a": 5}', "l|7": '{"b": "Ann"}'}
    engine = _installed(SHAPES[shape], rows)
    watch = engine.watch(b"o|", b"o}", lambda: None)
    before = engine.get(b"o|ann|7")
    engine.put(b"l|7", b'{"b": "Eve"}')
    (change,) = engine.settle(watch)
    assert isinstance(change, Change)
    assert (change.key, change.old) == (b"o|ann|7", before)
    assert change.new == engine.get(b"o|ann|7")


def test_a_record_that_comes_and_goes_is_one_change_of_a_row() -> None:
    engine = _installed(SHAPES["outer"], {"r|ann|7": '{"a": 5}'})
    watch = engine.watch(b"o|", b"o}", lambda: None)
    nothing, something = b'{"s":5,"n":null,"m":null}', b'{"s":5,"n":"Ann"}'
    assert engine.get(b"o|ann|7") == nothing
    engine.put(b"l|7", b'{"b": "Ann"}')
    assert engine.settle(watch) == [Change(b"o|ann|7", nothing, something)]
    engine.put(b"l|7", b"no record")
    assert engine.settle(watch) == [Change(b"o|ann|7", something, nothing)]
    engine.put(b"l|7", b'{"b": "Ann"}')
    engine.remove(b"l|7")
    assert engine.settle(watch) == []


def test_a_field_of_any_size_is_given() -> None:
    engine = _installed(SHAPES["by a field"], {"r|7|ann": '{"a": 5}'})
    text = "|\u00e9" * 200_000
    engine.put(b"l|7", b'{"b": "Ann", "a": "%b"}' % text.encode())
    found = engine.scan(b"o|Ann|", b"o|Ann}")
    assert found.values == [b'{"n":"%b","s":5}' % text.encode()]
