"""`.`, the value itself as a field; and indexes over values that joins compute, which nothing looks at anew."""

import orjson
import pytest
from pequod_grammar import parse

from pequod import encode_i64
from pequod.engine import Engine
from pequod.engine.joins import indexes
from pequod.engine.joins.indexes import Index
from pequod.language import many_records
from pequod.language.missing import Unindexed
from tests.engine.joins import engine_with, put_all, scan

KARMA = "karma|<author> = count vote|<author>|<voter>"
TOP = "top|<points:i64>|<author> = copy karma|<author> with . = <points>"
RANKED = "ranked|<points>|<author> = copy karma|<author> with . = <points>"


def _points(number: int) -> str:
    return f"top|{encode_i64(number)}|"


def _vote(engine: Engine, author: str, count: int) -> None:
    for number in range(count):
        engine.put(f"vote|{author}|{number}".encode(), b"1")


def test_a_leaderboard_over_counts_is_one_line() -> None:
    engine = engine_with(f"{KARMA}; {TOP}")
    for author, count in (("ann", 2), ("bob", 12), ("liz", 3)):
        _vote(engine, author, count)
    assert scan(engine, "top|") == {f"{_points(2)}ann": "2", f"{_points(3)}liz": "3", f"{_points(12)}bob": "12"}
    _vote(engine, "ann", 13)
    assert engine.scan(b"top|", b"top}", limit=1, reverse=True).keys == [f"{_points(13)}ann".encode()]
    engine.remove(b"vote|liz|0")
    assert list(scan(engine, "top|", _points(3))) == [f"{_points(2)}liz"]
    for number in range(3):
        engine.remove(b"vote|liz|%d" % number)
    assert len(scan(engine, "top|")) == 2


def test_of_the_best_votes_far_below_them_change_nothing_until_these_move_up() -> None:
    engine, authors = engine_with(f"{KARMA}; {TOP} keep last 2"), [f"a{number:02}" for number in range(40)]
    for number, author in enumerate(authors, 1):
        _vote(engine, author, number)
    assert list(scan(engine, "top|")) == [f"{_points(39)}a38", f"{_points(40)}a39"]
    for voter in range(50):
        engine.put(b"vote|a00|w%d" % voter, b"1")
        kept = sorted([(40, "a39"), (39, "a38"), (voter + 2, "a00")])[-2:]
        assert list(scan(engine, "top|")) == [f"{_points(points)}{author}" for points, author in kept]
    for number in range(40):
        engine.remove(b"vote|a39|%d" % number)
    assert list(scan(engine, "top|")) == [f"{_points(39)}a38", f"{_points(51)}a00"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("12", {"t|12|k": "12"}),
        (" 1.50 ", {"t|1.5|k": " 1.50 "}),
        ('"a b"', {"t|a b|k": '"a b"'}),
        ("true", {"t|true|k": "true"}),
        ("false", {"t|false|k": "false"}),
        ("12345678901234567890123", {"t|12345678901234567890123|k": "12345678901234567890123"}),
        ("null", {}),
        ("{}", {}),
        ('{".": 12}', {}),
        ("[12]", {}),
        ("", {}),
        ("Hi", {}),
        ("+5", {}),
        ('"a|b"', {}),
        ('""', {}),
    ],
)
def test_what_the_value_itself_is(value: str, shown: dict[str, str]) -> None:
    engine = engine_with("t|<v>|<id> = copy x|<id> with . = <v>; all|<id> = copy x|<id> with . exists")
    put_all(engine, {"x|k": value})
    assert scan(engine, "t|") == shown
    # A text without a form for its slot is a field all the same.
    assert bool(scan(engine, "all|")) == (bool(shown) or value in ('"a|b"', '""'))


@pytest.mark.parametrize(
    ("condition", "chosen"),
    [
        (". >= 10", "10 11.5 1e3"),
        (". < 10", "-1 9.99"),
        (". = 1000.0", "1e3"),
        (". != 10", "-1 9.99 11.5 1e3"),
        ('. >= "a"', '"a" "b"'),
        (". = true", "true"),
        (". != true", "false"),
        (". = null", ""),
        (". exists", '-1 9.99 10 11.5 1e3 "a" "b" true false'),
    ],
)
def test_comparisons_select_by_the_value(condition: str, chosen: str) -> None:
    engine = engine_with(f"t|<id> = copy x|<id> with {condition}")
    values = ["-1", "9.99", "10", "11.5", "1e3", '"a"', '"b"', "true", "false", "null", "{}", "[]", "no JSON"]
    put_all(engine, {f"x|{number:02}": value for number, value in enumerate(values)})
    assert list(scan(engine, "t|").values()) == [value for value in values if value in chosen.split()]


def test_what_a_source_gives_of_the_value() -> None:
    engine = engine_with(
        "one|<id> = copy x|<id> as .; some|<id> = copy x|<id> as {votes: ., again: .};"
        "all|a = sum x|<id> as .; n|a = count x|<id> as .; least|a = min x|<id> as ."
    )
    put_all(engine, {"x|1": "1e2", "x|2": '"Hi"', "x|3": "0.50", "x|4": "null", "x|5": "{}", "x|6": "Ho"})
    assert scan(engine, "one|") == {"one|1": "100", "one|2": "Hi", "one|3": "0.5"}
    assert scan(engine, "some|")["some|1"] == '{"votes":100,"again":100}'
    assert [scan(engine, f"{name}|")[f"{name}|a"] for name in ("all", "n", "least")] == ["100.5", "3", "0.5"]


def test_a_check_and_an_absence_look_at_computed_values() -> None:
    engine = engine_with(
        f"{KARMA}; known|<author>|<id> = check karma|<author> with . >= 2 copy p|<author>|<id>;"
        "new|<author>|<id> = copy p|<author>|<id> unless karma|<author> with . >= 2"
    )
    put_all(engine, {"p|ann|1": "x"})
    assert (list(scan(engine, "known|")), list(scan(engine, "new|"))) == ([], ["new|ann|1"])
    _vote(engine, "ann", 2)
    assert (list(scan(engine, "known|")), list(scan(engine, "new|"))) == (["known|ann|1"], [])


def test_extremes_that_are_no_json_have_no_row_and_are_counted() -> None:
    engine = engine_with("best|<game> = max score|<game>|<who>; top|<n>|<game> = copy best|<game> with . = <n>")
    put_all(engine, {"score|go|ann": "7", "score|chess|ann": "Hi"})
    assert scan(engine, "top|") == {"top|7|go": "7"}
    (source,) = engine.explain_join("top").sources
    (misfit,) = source.misfits
    assert (misfit.reason, misfit.key) == ("the value is no JSON number, string, true or false", b"best|chess")


class Looks:
    """Counts the rows that indexes are asked to show, other than by a change."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        show_all = many_records.show_all

        def counting(lens: object, keys: list[bytes], *others: object) -> object:
            self.count += len(keys)
            return show_all(lens, keys, *others)  # type: ignore[arg-type]

        monkeypatch.setattr(indexes, "show_all", counting)

    def of(self, engine: Engine, first: str) -> int:
        """Return how many rows a read looks at."""
        before = self.count
        engine.scan(first.encode(), first.encode()[:-1] + b"}")
        return self.count - before


def _index(engine: Engine) -> Index:
    (index,) = {id(index): index for join in engine._catalog for index in join.indexes if index is not None}.values()
    return index


def test_an_index_over_computed_values_is_kept_by_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(f"{KARMA}; {RANKED}")
    for number in range(30):
        _vote(engine, f"a{number:02}", 1 + number % 3)
    looks = Looks(monkeypatch)
    assert looks.of(engine, "ranked|1|") == 30
    for first in ("ranked|2|", "ranked|3|", "ranked|4|"):
        assert looks.of(engine, first) == 0
    _vote(engine, "a00", 4)
    engine.remove(b"vote|a02|0")
    _vote(engine, "new", 2)
    assert list(scan(engine, "ranked|4|")) == ["ranked|4|a00"]
    before = looks.count
    assert list(engine.scan(b"ranked|2|a0", b"ranked|2|b").keys) == [
        *(b"ranked|2|a01 ranked|2|a02 ranked|2|a04 ranked|2|a07".split()),
        *[b"ranked|2|a%02d" % number for number in range(10, 30, 3)],
    ]
    assert list(scan(engine, "ranked|5|")) == []
    assert looks.of(engine, "ranked|1|") == looks.of(engine, "ranked|6|") == 0
    assert looks.count - before <= 31 * 3, "only the check of the invariants has looked at them"


def test_joins_that_see_the_same_share_an_index_over_computed_values() -> None:
    engine = engine_with(f"{KARMA}; {RANKED}; n|<points> = count karma|<author> with . = <points>")
    _vote(engine, "ann", 2)
    assert scan(engine, "ranked|2|") == {"ranked|2|ann": "2"}
    assert scan(engine, "n|2") == {"n|2": "1"}
    indexes_held = {id(index) for join in engine._catalog for index in join.indexes if index is not None and index.rows}
    assert len(indexes_held) == 2, "a count sees no values"
    engine.drop_join("n")
    engine.drop_join("ranked")
    assert (engine.ledger.index_count, engine.ledger.index_bytes) == (0, 0)


def test_an_index_goes_with_the_contexts_that_hold_its_rows() -> None:
    engine = engine_with(f"{KARMA}; {RANKED}")
    _vote(engine, "ann", 2)
    scan(engine, "ranked|2|")
    assert _index(engine).rows is not None
    engine.invalidate(b"karma|", b"karma}")
    assert _index(engine).rows is None
    _vote(engine, "bob", 2)
    assert list(scan(engine, "ranked|2|")) == ["ranked|2|ann", "ranked|2|bob"]


def test_an_index_knows_a_join_that_comes_to_compute_the_same_table() -> None:
    engine = engine_with(f"{KARMA}; {RANKED}")
    _vote(engine, "ann", 2)
    put_all(engine, {"old|liz": "2", "old|ann": "7", "karma|x|y": "2"})
    scan(engine, "ranked|2|")
    engine.add_joins(parse("karma|<author> = copy old|<author>"))
    # Of two joins that compute a key, the earlier one gives the value.
    assert list(scan(engine, "ranked|2|")) == ["ranked|2|ann", "ranked|2|liz"]
    engine.drop_join("karma")
    assert list(scan(engine, "ranked|2|")) == ["ranked|2|liz"]
    assert list(scan(engine, "ranked|7|")) == ["ranked|7|ann"]


def test_an_index_of_stored_rows_that_joins_come_to_compute_is_not_made_any_more() -> None:
    engine = Engine(at_once=False)
    engine.add_joins(parse(RANKED))
    put_all(engine, {f"karma|a|{number}": "2" for number in range(600)})
    view = _index(engine).lens.view
    engine.add_joins(parse(KARMA))
    _vote(engine, "ann", 2)
    assert not engine.index_some(Unindexed(view))
    assert list(scan(engine, "ranked|2|")) == ["ranked|2|ann"]


def test_rows_of_clients_beside_computed_ones_are_in_the_index() -> None:
    engine = engine_with(
        "score|<game>|<who>|sum = sum point|<game>|<who>|<n>;"
        "rank|<n>|<game>|<who>|<kind> = copy score|<game>|<who>|<kind> with . = <n>"
    )
    put_all(engine, {"point|go|ann|1": "3", "score|go|bob|own": "3"})
    assert list(scan(engine, "rank|3|")) == ["rank|3|go|ann|sum", "rank|3|go|bob|own"]
    put_all(engine, {"score|go|bob|own": "4", "score|go|liz|own": "3", "point|go|ann|2": "1"})
    assert list(scan(engine, "rank|3|")) == ["rank|3|go|liz|own"]
    assert list(scan(engine, "rank|4|")) == ["rank|4|go|ann|sum", "rank|4|go|bob|own"]


def test_values_that_are_computed_on_each_read_or_kept_for_a_time() -> None:
    for maintenance in ("pull", "snapshot 5"):
        engine = engine_with(f"{KARMA.replace('= ', f'= {maintenance} ')}; {RANKED}")
        _vote(engine, "ann", 2)
        assert scan(engine, "ranked|2|") == {"ranked|2|ann": "2"}
        _vote(engine, "ann", 3)
        shown = {} if maintenance == "pull" else {"ranked|2|ann": "2"}
        assert scan(engine, "ranked|2|", now=4.0) == shown
        assert scan(engine, "ranked|3|", now=6.0) == {"ranked|3|ann": "3"}


def test_an_index_that_memory_is_too_short_for_is_not_kept() -> None:
    engine = engine_with(f"{KARMA}; {RANKED}")
    for number in range(400):
        _vote(engine, f"{number:040}", 1)
    scan(engine, "karma|")
    engine.ledger.limit_bytes = engine.ledger.total_bytes + 60_000
    assert len(scan(engine, "ranked|1|")) == 400
    assert engine.ledger.total_bytes <= engine.ledger.limit_bytes


def test_values_of_other_joins_are_parsed_as_json() -> None:
    engine = engine_with("copied|<id> = copy x|<id>; by|<n>|<id> = copy copied|<id> with . = <n>")
    for number, value in enumerate(["7", "7.0", '"7"', "70e-1", "8"]):
        engine.put(b"x|%d" % number, value.encode())
    assert list(scan(engine, "by|7|")) == [f"by|7|{number}" for number in range(4)]
    assert [orjson.loads(value) for value in scan(engine, "by|7|").values()] == [7, 7.0, "7", 7.0]
