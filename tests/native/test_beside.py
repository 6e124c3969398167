"""Two whole engines side by side, the native one and one on Python's classes: after each step both hold the same.

The engine here is compared with the naive model too, by `Walker.take`.
"""

from collections.abc import Callable, Iterator
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from pequod_grammar import parse

from pequod.engine import JoinSpec
from tests.engine.draw import BASE_TABLES, draw_join, draw_kept_timeline, draw_timeline
from tests.engine.draw_composed import draw_composed_join
from tests.engine.draw_rankings import draw_ranking
from tests.engine.draw_records import draw_record_join
from tests.engine.earlier import draw_beginning, draw_earlier
from tests.engine.random_walk import draw_fit_join, draw_step, small_limits
from tests.engine.walker import Step, Walker
from tests.native.beside import PureTwin, begin, portrait
from tests.native.core import hot

assert hot.INTERFACE


@pytest.fixture(scope="module")
def twin() -> Iterator[PureTwin]:
    found = PureTwin()
    yield found
    found.end()


def check_quick(walker: Walker) -> None:
    """See that what a native batch may answer by an end alone is what the model says."""
    for view in walker.engine._hits.by_last.values():
        timeline = view.timeline
        if timeline is None or not timeline.is_ready(walker.now) or view.table.entry_count or walker._is_timed():
            continue
        found = timeline.rows.since(timeline.prefix, view.first, None)
        assert list(zip(*found, strict=True)) == walker.model.scan(view.first, view.last)


@pytest.mark.parametrize("kind", ["timelines", "kept", "any", "backed", "backfills", "records", "composed", "rankings"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random=st.randoms(use_true_random=True), seed=st.integers(0, 1 << 30), step_count=st.integers(1, 60))
def test_the_native_engine_is_as_the_pure_one(
    twin: PureTwin, kind: str, random: Random, seed: int, step_count: int
) -> None:
    draws: dict[str, Callable[[Random], JoinSpec]] = {"timelines": draw_timeline, "kept": draw_kept_timeline}
    draws |= {"backfills": draw_fit_join, "records": draw_record_join, "composed": draw_composed_join}
    draw = draws.get(kind, draw_join)
    backed = tuple(random.sample(BASE_TABLES, random.choice([1, 2, 3]))) if kind == "backed" else ()
    with small_limits(Random(seed)):
        walker = begin(seed, backed)
        walker.is_backfilling = kind == "backfills"
        assert portrait(walker.engine) == twin.take((seed, backed))
        joins = draw_ranking(random) if kind == "rankings" else [draw(random) for _ in range(random.choice([1, 1, 2]))]
        adds = [Step("add", (join,)) for join in joins]
        script = [*draw_earlier(random, joins), *adds, *draw_beginning(random, joins)]
        for number in range(len(script) + step_count):
            step = script[number] if number < len(script) else draw_step(random, walker, snapshots=False)
            walker.take(step)
            here, there = portrait(walker.engine), twin.take(step)
            assert here == there, step
            check_quick(walker)


def test_a_log_of_changes_that_a_database_tells_is_too_long_at_the_same_change(twin: PureTwin) -> None:
    seed = next(seed for seed in range(100) if small_limits(Random(seed)).log_max == 2)
    (join,) = parse("t|<z> = check q|<y> max m|<z>|<y>")
    changes = [Step("put", (b"q|%d" % number, b"1")) for number in range(6)]
    script = [Step("add", (join,)), Step("scan", (b"t|", b"t}", None, False)), *changes]
    with small_limits(Random(seed)):
        walker = begin(seed, (b"q",))
        assert portrait(walker.engine) == twin.take((seed, (b"q",)))
        counts = []
        for step in script:
            walker.take(step)
            assert portrait(walker.engine) == twin.take(step), step
            counts.append(walker.engine.ledger.context_count)
    assert counts == [0, 1, 1, 1, 0, 0, 0, 0]


def test_loaded_rows_that_a_log_takes_away_were_used_by_the_read_that_applied_it(twin: PureTwin) -> None:
    (join,) = parse("t|<user>|<time:1>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:1>")
    scan = Step("scan", (b"t|ann|", b"t|ann}", None, False))
    script = [
        Step("put_all", (((b"s|ann|bob", b""), (b"s|ann|liz", b"")),)),
        Step("put_all", (((b"p|bob|1", b"x"), (b"p|liz|2", b"y")),)),
        Step("add", (join,)),
        scan,
        Step("remove", (b"s|ann|bob",)),
        scan,
    ]
    with small_limits(Random(0)):
        walker = begin(0, (b"p",))
        assert portrait(walker.engine) == twin.take((0, (b"p",)))
        for step in script:
            walker.take(step)
            assert portrait(walker.engine) == twin.take(step), step
        loaded = walker.engine._store.backed[0].presence
        assert loaded is not None
        bob, _ = loaded
        # The walker counts the rows after it has read them.
        assert (bob.first, bob.last_used) == (b"p|bob|", walker.engine._reads.number - 1)


def test_a_read_of_a_range_without_keys_uses_the_context_that_came_to_hold_it(twin: PureTwin) -> None:
    (join,) = parse("v|<x>|<y:1>|2 = max w|<x> check s|<y>")
    # Behind the one key under v|b|a|: it needs no context, and none is there.
    beyond = Step("scan", (b"v|b|a|2~", b"v|b|a}", None, False))
    script = [Step("add", (join,)), beyond, Step("scan", (b"v|b|a|", b"v|b|c|", None, False)), beyond]
    hits = []
    with small_limits(Random(0)):
        walker = begin(0, ())
        assert portrait(walker.engine) == twin.take((0, ()))
        for step in script:
            walker.take(step)
            assert portrait(walker.engine) == twin.take(step), step
            hits.append([installed.counters.hits for installed in walker.engine._catalog])
    # The walker reads a range twice: its rows, and their count, of which the join can say that it has none.
    assert hits == [[0], [0], [1], [2]]


def test_a_log_that_takes_rows_away_and_brings_others_leaves_the_same_bytes(twin: PureTwin) -> None:
    (join,) = parse("t|<user>|<time:1>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:1>")
    scan = Step("scan", (b"t|ann|", b"t|ann}", None, False))
    script = [
        Step("put_all", (((b"p|a|1", b"x"), (b"p|elizabeth|2", b"y"), (b"s|ann|elizabeth", b"")),)),
        Step("add", (join,)),
        scan,
        # The log has the one who comes first; what goes is taken out before, as the mean of those that are there.
        Step("put", (b"s|ann|a", b"")),
        Step("remove", (b"s|ann|elizabeth",)),
        scan,
    ]
    with small_limits(Random(0)):
        walker = begin(0, ())
        assert portrait(walker.engine) == twin.take((0, ()))
        sizes = []
        for step in script:
            walker.take(step)
            assert portrait(walker.engine) == twin.take(step), step
            sizes.append(walker.engine.ledger.row_bytes)
    # The tails are 2|elizabeth and 1|a.
    assert sizes[2] - sizes[5] == len(b"elizabeth") - len(b"a")
