"""What a reader of joins over records may rely on, one law a test."""

from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine.testing import NaiveModel
from pequod.language import many_records
from pequod.language.forms import Misfit
from pequod.language.many_records import show_all
from pequod.language.numbers import encode_f64, encode_i64
from pequod.language.records import Lens, parse_value
from pequod.language.views import plain_join
from tests.engine.draw_records import draw_record
from tests.engine.joins import BY_AUTHOR, REVIEW, engine_with, put_all, scan

CHEAP = 'cheap|<price:8>|<id> = copy item|<id> with price = <price:8>, stock > 0, status = "open" as {name, price}'
TAGGED = "tagged|<tag>|<time:10>|<id> = copy post|<id> with tags[] = <tag>, time = <time:10>"
REVENUE = "revenue|<region>|<day:10> = sum order|<id> with region = <region>, day = <day:10> as amount"


def test_a_field_is_a_key() -> None:
    engine = engine_with(BY_AUTHOR)
    put_all(
        engine,
        {
            "article|1": '{"author": "bob", "title": "Hi", "stats": {"votes": 3}}',
            "article|2": '{"author": "bob", "title": "Ho"}',
            "article|3": '{"author": "ann", "title": "Ha"}',
        },
    )
    assert scan(engine, "by_author|bob|") == {
        "by_author|bob|1": '{"title":"Hi","votes":3}',
        "by_author|bob|2": '{"title":"Ho"}',
    }


def test_a_change_of_a_field_moves_the_row() -> None:
    engine = engine_with(BY_AUTHOR)
    put_all(engine, {"article|1": '{"author": "bob", "title": "Hi"}'})
    for name in ("bob", "ann"):
        scan(engine, f"by_author|{name}|")
    put_all(engine, {"article|1": '{"author": "ann", "title": "Hi"}'})
    assert scan(engine, "by_author|bob|") == {}
    assert scan(engine, "by_author|ann|") == {"by_author|ann|1": '{"title":"Hi"}'}
    put_all(engine, {"article|1": "no record"})
    assert scan(engine, "by_author|") == {}
    put_all(engine, {"article|1": '{"author": "liz", "title": "Hi"}'})
    assert scan(engine, "by_author|") == {"by_author|liz|1": '{"title":"Hi"}'}
    engine.remove(b"article|1")
    assert scan(engine, "by_author|liz|") == {}


def test_conditions_are_all_to_hold() -> None:
    engine = engine_with(CHEAP)
    put_all(
        engine,
        {
            "item|1": '{"name": "cup", "price": 12, "stock": 1, "status": "open"}',
            "item|2": '{"name": "pot", "price": 7, "stock": 0, "status": "open"}',
            "item|3": '{"name": "pan", "price": 7, "stock": 2, "status": "shut"}',
            "item|4": '{"name": "tin", "price": 7, "stock": "many", "status": "open"}',
        },
    )
    assert scan(engine, "cheap|") == {"cheap|00000012|1": '{"name":"cup","price":12}'}
    put_all(engine, {"item|2": '{"name": "pot", "price": 7, "stock": 0.5, "status": "open"}'})
    assert scan(engine, "cheap|", "cheap|00000010") == {"cheap|00000007|2": '{"name":"pot","price":7}'}


def test_an_array_gives_one_row_for_each_distinct_element() -> None:
    engine = engine_with(TAGGED)
    value = '{"tags": ["red", "new", "red", 1, 1.0, null, "a|b", ""], "time": 7}'
    put_all(engine, {"post|x": value})
    tags = ("1", "new", "red")
    assert scan(engine, "tagged|") == {f"tagged|{tag}|0000000007|x": value for tag in tags}
    value = '{"tags": ["new"], "time": 8}'
    put_all(engine, {"post|x": value})
    assert scan(engine, "tagged|new|") == {"tagged|new|0000000008|x": value}
    assert scan(engine, "tagged|red|") == {}


def test_sums_follow_the_fields() -> None:
    engine = engine_with(REVENUE)
    day = '"region": "eu", "day": "2026-11-22"'
    put_all(engine, {"order|1": f'{{{day}, "amount": 2.5}}', "order|2": f'{{{day}, "amount": 0.00001}}'})
    assert scan(engine, "revenue|eu|") == {"revenue|eu|2026-11-22": "2.50001"}
    put_all(engine, {"order|1": f'{{{day}, "amount": null}}', "order|3": f'{{{day}, "amount": "x"}}'})
    assert scan(engine, "revenue|eu|") == {"revenue|eu|2026-11-22": "0.00001"}
    assert engine.statistics().joins["revenue"].not_a_number == 1


def test_the_value_of_a_check_matters_if_it_is_looked_at() -> None:
    engine = engine_with(REVIEW)
    put_all(
        engine,
        {
            "item|tea": '{"visible": true}',
            "item|rum": '{"visible": false}',
            "review|1": '{"item": "tea", "date": "d1", "subject": "good", "rating": 5}',
            "review|2": '{"item": "rum", "date": "d1", "subject": "bad", "rating": 1}',
        },
    )
    tea = {"review|tea|d1|1": '{"subject":"good","rating":5}'}
    rum = {"review|rum|d1|2": '{"subject":"bad","rating":1}'}
    for _ in range(2):
        assert scan(engine, "review|tea|") == tea
        assert scan(engine, "review|rum|") == {}
        put_all(engine, {"item|rum": '{"visible": true}', "item|tea": '{"visible": 1}'})
        assert scan(engine, "review|rum|") == rum
        assert scan(engine, "review|tea|") == {}
        put_all(engine, {"item|tea": '{"visible": true, "other": 1}', "item|rum": "{}"})


@pytest.mark.parametrize(
    ("condition", "value", "holds"),
    [
        ("a = 1", "1.0", True),
        ("a = 1", "true", False),
        ("a != 1", "true", False),
        ("a != 1", "2", True),
        ("a < 10", "9", True),
        ("a < 10", '"9"', False),
        ('a < "10"', '"1"', True),
        ('a >= "é"', '"z"', False),
        ("a = true", "true", True),
        ("a != true", "false", True),
        ("a != true", "null", False),
        ("a = null", "null", True),
        ("a != null", "1", False),
        ("a exists", "null", True),
        ("a.b exists", '{"b": 1}', True),
        ("a.b exists", "1", False),
        ("a <= 18446744073709551615", "18446744073709551615", True),
        ("a < 9007199254740993", "9007199254740992", True),
    ],
)
def test_a_comparison_selects_records(condition: str, value: str, holds: bool) -> None:
    engine = engine_with(f"t|<id> = copy x|<id> with {condition}")
    put_all(engine, {"x|1": f'{{"a": {value}}}', "x|2": "{}", "x|3": f"[{value}]"})
    assert list(scan(engine, "t|")) == (["t|1"] if holds else [])


@pytest.mark.parametrize(
    ("slot", "value", "form"),
    [
        ("<s>", '"bob"', "bob"),
        ("<s>", '"é"', "é"),
        ("<s>", '""', None),
        ("<s>", '"a|b"', None),
        ("<s>", "7", "7"),
        ("<s>", "-7.0", "-7"),
        ("<s>", "1.50", "1.5"),
        ("<s>", "1e300", "1e300"),
        ("<s>", "true", "true"),
        ("<s>", "null", None),
        ("<s>", "{}", None),
        ("<s>", "[]", None),
        ("<s>", f'"{"x" * 4097}"', None),
        ("<s:4>", '"bob"', None),
        ("<s:4>", '"a|bb"', "a|bb"),
        ("<s:4>", "12", "0012"),
        ("<s:4>", "12.0", "0012"),
        ("<s:4>", "12345", None),
        ("<s:4>", "-1", None),
        ("<s:4>", "1.5", None),
        ("<s:4>", "true", "true"),
        ("<s:4>", "false", None),
        ("<s:4>", "null", None),
        ("<s:i64>", "-5", encode_i64(-5)),
        ("<s:i64>", "5.0", encode_i64(5)),
        ("<s:i64>", "5.5", None),
        ("<s:i64>", "9223372036854775808", None),
        ("<s:i64>", '"5"', None),
        ("<s:i64>", "null", None),
        ("<s:f64>", "-5.5", encode_f64(-5.5)),
        ("<s:f64>", "9007199254740993", None),
        ("<s:f64>", "true", None),
        ("<s:f64>", "{}", None),
    ],
)
def test_forms_of_fields_in_keys(slot: str, value: str, form: str | None) -> None:
    text = f"t|{slot}|<id> = copy x|<id> with a = <s>"
    engine, model = engine_with(text), NaiveModel()
    model.add(*parse(text))
    put_all(engine, {"x|1": f'{{"a": {value}}}'})
    model.put(b"x|1", f'{{"a": {value}}}'.encode())
    expected = {} if form is None else {f"t|{form}|1": f'{{"a": {value}}}'}
    assert scan(engine, "t|") == expected
    assert dict(model.scan(b"t|", b"t}")) == {key.encode(): value.encode() for key, value in expected.items()}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('"a \\"b\\""', 'a "b"'),
        ('""', ""),
        ("7", "7"),
        ("1.50", "1.5"),
        ("1e-7", "0.0000001"),
        ("1e300", "1e300"),
        ("false", "false"),
        ("null", None),
        ('{"b": [1, 2]}', '{"b":[1,2]}'),
        ("[ ]", "[]"),
        ("[" * 300 + "]" * 300, None),
    ],
)
def test_a_field_by_itself(value: str, text: str | None) -> None:
    engine = engine_with("t|<id> = copy x|<id> as a")
    put_all(engine, {"x|1": f'{{"a": {value}}}', "x|2": "{}"})
    assert scan(engine, "t|") == ({} if text is None else {"t|1": text})


def test_counts_count_those_that_have_the_field() -> None:
    engine = engine_with("n|<b> = count x|<id> with b = <b> as a; all|<b> = count x|<id> with b = <b>")
    put_all(engine, {"x|1": '{"b": 1, "a": 0}', "x|2": '{"b": 1, "a": null}', "x|3": '{"b": 1}', "x|4": '{"b": 2}'})
    assert scan(engine, "n|") == {"n|1": "1"}
    assert scan(engine, "all|") == {"all|1": "3", "all|2": "1"}
    put_all(engine, {"x|3": '{"b": 1, "a": "now"}', "x|1": "{}"})
    assert scan(engine, "n|") == {"n|1": "1"}
    assert scan(engine, "all|") == {"all|1": "2", "all|2": "1"}


def test_slots_of_keys_are_compared_as_bytes() -> None:
    engine = engine_with('late|<author>|<time:4> = copy post|<time:4> with <time> >= "0100", author = <author>')
    put_all(engine, {"post|0099": '{"author": "bob"}', "post|0100": '{"author": "bob"}', "post|0101": "text"})
    assert list(scan(engine, "late|bob|")) == ["late|bob|0100"]


def test_the_least_and_the_greatest_are_right_when_they_go() -> None:
    engine = engine_with("best|<game> = max play|<id> with game = <game> as score")
    put_all(engine, {f"play|{score}": f'{{"game": "go", "score": {score}}}' for score in (5, 9, 7)})
    assert scan(engine, "best|go") == {"best|go": "9"}
    engine.remove(b"play|9")
    assert scan(engine, "best|go") == {"best|go": "7"}
    put_all(engine, {"play|7": '{"game": "chess", "score": 7}'})
    assert scan(engine, "best|go") == {"best|go": "5"}


def test_an_ambiguous_copy_shows_the_greatest_key_of_the_table() -> None:
    engine = engine_with("latest|<room> = copy message|<id> with room = <room> as text")
    put_all(engine, {"message|2": '{"room": "x", "text": "two"}', "message|10": '{"room": "x", "text": "ten"}'})
    assert scan(engine, "latest|x") == {"latest|x": "two"}
    put_all(engine, {"message|3": '{"room": "x", "text": "three"}'})
    assert scan(engine, "latest|x") == {"latest|x": "three"}
    engine.remove(b"message|3")
    assert scan(engine, "latest|x") == {"latest|x": "two"}


def test_joins_over_joins_see_records_too() -> None:
    engine = engine_with(
        "open|<id> = copy ticket|<id> with state = 1 as {team, rank};"
        "board|<team>|<rank:3>|<id> = copy open|<id> with team = <team>, rank = <rank:3>"
    )
    put_all(engine, {"ticket|a": '{"state": 1, "team": "x", "rank": 2}', "ticket|b": '{"state": 2, "team": "x"}'})
    assert list(scan(engine, "board|x|")) == ["board|x|002|a"]
    put_all(
        engine, {"ticket|a": '{"state": 1, "team": "y", "rank": 3}', "ticket|c": '{"state": 1, "team": "x", "rank": 1}'}
    )
    assert list(scan(engine, "board|x|")) == ["board|x|001|c"]
    assert list(scan(engine, "board|y|")) == ["board|y|003|a"]


@pytest.mark.parametrize(("maintenance", "reads"), [("", "open|<team>|"), ("pull ", "open|")])
def test_a_source_that_joins_compute_is_read_by_an_index_or_on_each_read_by_its_own_keys(
    maintenance: str, reads: str
) -> None:
    engine = engine_with(
        f"open|<id> = {maintenance}copy ticket|<id> with state = 1 as {{team}};"
        "board|<team>|<id> = copy open|<id> with team = <team>"
    )
    opened, board = [engine.explain_join(name).sources[0] for name in ("open", "board")]
    assert (opened.reads, board.reads, board.index is None) == ("ticket|<id>", reads, bool(maintenance))
    assert [source.reads for source in engine_with(BY_AUTHOR).explain_join("by_author").sources] == [
        "article|<author>|"
    ]


@pytest.mark.parametrize(
    "join",
    [
        "t|<u>|<x:4>|<p> = check s|<u>|<p> with on = true copy p|<p>|<x>",
        "t|<u>|<x:4>|<p> = check s|<u>|<p> copy p|<p>|<x> with on = true",
    ],
)
def test_timelines_of_records_are_as_recomputed(join: str) -> None:
    engine, model = engine_with(join), NaiveModel()
    for spec in parse(join):
        model.add(spec)

    def put(key: str, *, on: bool) -> None:
        value = b'{"on":%s}' % (b"true" if on else b"false")
        engine.put(key.encode(), value)
        model.put(key.encode(), value)

    for poster, on in (("bob", True), ("liz", False)):
        put(f"s|ann|{poster}", on=on)
        for time in (100, 200):
            put(f"p|{poster}|{time:04}", on=on)
    for key in ("s|ann|liz", "p|liz|0100", "s|ann|bob", "p|bob|0200"):
        assert list(zip(*engine.scan(b"t|ann|", b"t|ann}"), strict=True)) == model.scan(b"t|ann|", b"t|ann}")
        put(key, on="liz" in key)
        engine._check()
    for first in (b"t|ann|0101", b"t|"):
        assert list(zip(*engine.scan(first, b"t}"), strict=True)) == model.scan(first, b"t}")


def test_a_watch_is_told_when_a_row_moves() -> None:
    engine = engine_with(BY_AUTHOR)
    put_all(engine, {"article|1": '{"author": "bob", "title": "Hi"}'})
    watch = engine.watch(b"by_author|", b"by_author}", lambda: None)
    put_all(engine, {"article|1": '{"author": "ann", "title": "Hi"}'})
    told = {(key, old, new) for key, old, new in engine.settle(watch)}
    assert told == {(b"by_author|bob|1", b'{"title":"Hi"}', None), (b"by_author|ann|1", None, b'{"title":"Hi"}')}


def test_a_condition_that_never_holds_is_warned_of() -> None:
    (join,) = engine_with("t|<id> = copy x|<id> with a != null, b != 1").joins()
    (warning,) = join.warnings
    assert warning.startswith("`a != null` never holds")


def test_fields_are_found_at_any_depth() -> None:
    engine = engine_with("deep|<y>|<z>|<id> = copy item|<id> with a.y = <y>, a.b.z = <z>")
    put_all(
        engine,
        {
            "item|1": '{"a": {"y": "1", "b": {"z": "2"}}}',
            "item|2": '{"a": {"y": "1", "b": 2}}',
            "item|3": '{"a": 1}',
        },
    )
    assert list(scan(engine, "deep|")) == ["deep|1|2|1"]


def test_only_the_elements_that_changed_are_told() -> None:
    engine = engine_with(f"{TAGGED} as title")
    put_all(engine, {"post|1": '{"tags": ["red", "new"], "time": "0000000001", "title": "Hi"}'})
    watch = engine.watch(b"tagged|", b"tagged}", lambda: None)
    engine.put(b"post|1", b'{"tags": ["red", "old"], "time": "0000000001", "title": "Hi"}')
    told = [(change.key, change.new is None) for change in engine.settle(watch)]
    assert sorted(told) == [(b"tagged|new|0000000001|1", True), (b"tagged|old|0000000001|1", False)]


@pytest.mark.parametrize(
    "join",
    [
        "t|<a>|<id> = copy s|<id> with a = <a>",
        "t|<a:1>|<id:2> = copy s|<id:2> with a = <a:1>",
        "t|<a>|<id> = copy s|x|<id> with a = <a>",
        "t|<a>|<id>|<of> = copy s|<id>|<of> with a = <a>",
        "t|<a>|<b>|<id> = copy s|<id> with a = <a>, b = <b>",
        "t|<a>|<id> = copy s|<id> with a = <a> as b",
        "t|<e>|<id> = copy s|<id> with e[] = <e>",
        "t|<e>|<a>|<id> = copy s|<id> with e[] = <e>, a = <a>",
        "t|<e>|<a>|<id> = copy s|<id> with a = <a>, e[] = <e> as b",
        "t|<e>|<id> = copy s|<id> with a = <e>, e[] = <e>",
        "t|<e>|<id> = copy s|<id> with e[] = <e>, b exists",
        "t|<e> = copy s|x with e[] = <e>",
        "t|<a> = copy s|x with a = <a>, b exists",
        "t|<e>|<id> = copy s|<id> with c.d[] = <e> as c",
    ],
)
@pytest.mark.parametrize("run", [1, 3, 256])
def test_many_records_show_what_each_shows_by_itself(join: str, run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # In runs of one row or of few, all rows of a column are often of the usual kind.
    monkeypatch.setattr(many_records, "_ROWS", run)
    (view,) = plain_join(*parse(join))[1]
    assert view is not None
    lens, random = Lens(view), Random(3)
    keys = [b"s|%b" % key for key in (b"x", b"1", b"01", b"x|1", b"x|01", b"1|1|1", b"")] * 10
    values = [draw_record(random) for _ in keys]
    values[:3] = [b'{"a":"a","b":1,"e":["a","b","a"]}', b'{"a":"a","e":[]}', b'{"a":"%b","e":["","|"]}' % (b"a" * 4097)]
    rows = dict(zip(keys, values, strict=True))
    rows |= {b"s|x|%02d" % number: value for number, value in enumerate(values)}
    rows |= {b"s|%02d" % number: value for number, value in enumerate(values)}
    rows = {key: value for key, value in rows.items() if key.startswith(view.source.pattern.literal_prefix)}
    misfits: list[tuple[bytes, Misfit]] = []
    found = show_all(lens, list(rows), list(rows.values()), lambda misfit, key: misfits.append((key, misfit)))
    each = {key: lens.show(key, value, parse_value) for key, value in rows.items()}
    shown = [row for one in each.values() if not isinstance(one, Misfit) for row in one.items()]
    assert sorted(zip(*found, strict=True)) == sorted(shown)
    counted = {row for row in misfits if row[1] is not Misfit.NOT_SELECTED}
    assert counted == {
        (key, one) for key, one in each.items() if isinstance(one, Misfit) and one is not Misfit.NOT_SELECTED
    }
