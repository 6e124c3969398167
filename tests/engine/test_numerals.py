"""Numbers in records keep all their digits, and equal ones are written alike: beside a model of decimals."""

from decimal import Decimal
from random import Random

import pytest
from pequod_grammar import parse

from pequod.engine.naive_records import parse as parse_naively
from pequod.engine.testing import NaiveModel
from pequod.language.forms import Misfit
from pequod.language.numerals import Vast, exact, number_text
from pequod.language.parsing import _MAY_LOSE, may_lose, read_json
from tests.engine.joins import engine_with, put_all, scan

LONG = "123456789012345678901234567890"
JOINS = (
    "k|<a>|<id> = copy x|<id> with a = <a> as a; w|<a:24>|<id> = copy x|<id> with a = <a:24>;"
    "i|<a:i64>|<id> = copy x|<id> with a = <a:i64> as {a}; f|<a:f64>|<id> = copy x|<id> with a = <a:f64>;"
    "l|<id> = copy x|<id> with a < 12345678901234567.89 as a; g|<id> = copy x|<id> with a >= 100 as {b: a};"
    "e|<id> = copy x|<id> with a = 1e400; n|<id> = copy x|<id> with a != 9007199254740993; o|<id> = copy x|<id> as b;"
    "sum|<g> = sum x|<id> with g = <g> as a; min|<g> = min x|<id> with g = <g> as a;"
    "max|<g> = max x|<id> with g = <g> as a"
)


def draw_number(random: Random) -> str:
    """Draw a JSON number: few digits, or as many as a double has or more, or an exponent of any size."""
    if random.random() < 0.3:
        # One number in several spellings.
        digits, zeros = random.choice(["1", "12", "9007199254740993", LONG]), random.randrange(4)
        return random.choice(
            [digits, f"{digits}.{'0' * (zeros + 1)}", f"{digits}{'0' * zeros}e-{zeros}", f"0.{digits}E{len(digits)}"]
        )
    whole = str(random.randrange(10 ** random.choice([1, 3, 15, 16, 17, 18, 19, 20, 21, 40])))
    fraction = "." + str(random.randrange(10 ** random.choice([1, 2, 10, 30]))) if random.random() < 0.5 else ""
    size = random.choice([1, 5, 30, 99, 100, 400, 999999999, 10**9, 10**40])
    exponent = f"{random.choice('eE')}{random.choice(['', '+', '-'])}{random.randrange(size + 1)}"
    return random.choice(["", "-"]) + whole + fraction + (exponent if random.random() < 0.4 else "")


def numbers(count: int) -> list[str]:
    """Return some numbers, the first ones by hand."""
    random = Random(38)
    known = f"0 -0 -0.0 0e0 1 1.0 1E5 100000 0.1 0.10 1e-1 1e400 -1e400 1e-400 {LONG} {LONG[:-1]}1 1e30 1{'0' * 30}"
    edges = "18446744073709551615 18446744073709551616 18446744073709551617 -9223372036854775808 -9223372036854775809"
    more = "1e999999999 -1e999999999 1e-999999999 1e9999999999 12345678901234567.89 123456789012345e5"
    return [*known.split(), *edges.split(), *more.split(), "9" * 5000, *(draw_number(random) for _ in range(count))]


def test_equal_numbers_have_one_text_and_different_ones_have_two() -> None:
    texts: dict[Decimal, bytes] = {}
    for spelled in numbers(5000):
        value, naive = read_json(spelled.encode()), parse_naively(spelled)
        if isinstance(value, Vast):
            assert value.text == spelled
            continue
        assert isinstance(value, int | float | Decimal)
        assert exact(value) == naive
        text = number_text(value)
        assert texts.setdefault(naive, text) == text
        again = read_json(text)
        assert isinstance(again, int | float | Decimal)
        assert exact(again) == naive
    assert len(set(texts.values())) == len(texts)


@pytest.mark.parametrize("seed", range(4))
def test_joins_see_each_number_as_a_model_of_decimals_does(seed: int) -> None:
    random = Random(seed)
    engine, model = engine_with(JOINS), NaiveModel()
    for spec in parse(JOINS):
        model.add(spec)
    chosen = random.sample(numbers(300), 60)
    for number, spelled in enumerate(chosen * 2):
        if number == len(chosen):
            # From here on the indexes are there, and each put changes rows.
            assert scan(engine, "k|") == texts(model, "k|")
        key = f"x|{random.randrange(30)}"
        other = random.choice(numbers(20))
        value = f'{{"a": {spelled}, "g": {random.randrange(3)}, "b": [{other}, {{"c": {other}}}]}}'
        put_all(engine, {key: value})
        model.put(key.encode(), value.encode())
        if number % 20 == 0:
            for table in ("k|", "w|", "i|", "f|", "l|", "g|", "e|", "n|", "o|", "sum|", "min|", "max|"):
                assert scan(engine, table) == texts(model, table)
    engine._check()


def texts(model: NaiveModel, start: str) -> dict[str, str]:
    """Return the model's rows of a table."""
    rows = model.scan(start.encode(), start[:-1].encode() + b"}")
    return {key.decode(): value.decode() for key, value in rows}


def test_keys_have_the_digits_of_their_fields() -> None:
    engine = engine_with("t|<a>|<id> = copy x|<id> with a = <a> as a")
    put_all(engine, {"x|1": f'{{"a":{LONG}}}', "x|2": f'{{"a":{LONG[:-1]}1}}'})
    assert scan(engine, "t|") == {f"t|{LONG}|1": LONG, f"t|{LONG[:-1]}1|2": f"{LONG[:-1]}1"}


def test_sums_of_fields_are_exact() -> None:
    engine = engine_with("t|<g> = sum x|<id> with g = <g> as amount")
    put_all(engine, {"x|1": '{"g":1,"amount":12345678901234567.89}', "x|2": '{"g":1,"amount":0.01}'})
    assert scan(engine, "t|") == {"t|1": "12345678901234567.9"}


@pytest.mark.parametrize("other", ["1e400", "-1e999999999", "1e99999999999999999999", r'"\ud800"', r'{"\ud800":1}'])
def test_what_a_double_or_utf_8_has_not_does_not_hide_the_other_fields(other: str) -> None:
    engine = engine_with("t|<a>|<id> = copy x|<id> with a = <a>; u|<a>|<b>|<id> = copy x|<id> with a = <a>, b = <b>")
    value = f'{{"a":"red","b":{other}}}'
    put_all(engine, {"x|1": value})
    assert scan(engine, "t|") == {"t|red|1": value}
    shown = {f"u|red|{other}|1": value} if other in ("1e400", "-1e999999999") else {}
    assert scan(engine, "u|") == shown


def test_a_record_of_1024_levels_is_one() -> None:
    engine = engine_with("t|<a>|<id> = copy x|<id> with a = <a> as a")
    for depth in (1022, 1023, 1024):
        for number in ("1", "1e400"):
            put_all(engine, {f"x|{depth}": f'{{"a":{number},"b":{"[" * depth}1e400{"]" * depth}}}'})
            key = f"t|{number}|{depth}"
            assert scan(engine, "t|").get(key) == (number if depth < 1024 else None)


@pytest.mark.parametrize(
    "text",
    [
        *("01e400", "1.e400", ".5e400", "1e400x", "-", "+1e400", "1e", "1e400e1", "tru1e400", "1e400true", '"a"1e400'),
        *("{1e400:1}", "[1e400", '["\\ud800]', '["\\ud800\\x"]', "NaN", "Infinity", '"\0n1"', "1e400 1", "\ufeff1e400"),
    ],
)
def test_what_is_no_json_stays_none(text: str) -> None:
    with pytest.raises(ValueError):
        read_json(text.encode())


def test_texts_that_look_like_marks_stay_themselves() -> None:
    text = r'{"\u0000n1":"\u0000n7","\u0000s":["\u0000s\"x\"","\ud83d\ude00","\udc00\ud800"],"b":1e400}'
    halves = ["\0s" + '"x"', "\U0001f600", "\udc00\ud800"]
    assert read_json(text.encode()) == {"\0n1": "\0n7", "\0s": halves, "b": Decimal("1e400")}


def test_a_name_that_is_there_twice_counts_once_the_last() -> None:
    assert read_json(b'{"a":1e400,"a":2,"\\ud83d\\ude00":1,"\xf0\x9f\x98\x80":3}') == {"a": 2, "\U0001f600": 3}


def test_the_look_for_large_numbers_is_the_same_in_both_languages() -> None:
    found = 0
    for spelled in numbers(3000):
        for text in (spelled, f'{{"a":{spelled}}}', f"[1, {spelled} ]", f'"{spelled}"', f'"x{spelled}"'):
            is_found = may_lose(text.encode())
            assert is_found == (_MAY_LOSE(text.encode()) is not None), text
            found += is_found
    assert found > 1000


def test_a_number_beyond_bounds_says_so() -> None:
    engine = engine_with("t|<a>|<id> = copy x|<id> with a = <a>")
    put_all(engine, {"x|1": '{"a":1e9999999999}', "x|2": r'{"a":"\ud800"}'})
    assert scan(engine, "t|") == {}
    reasons = {found.reason for source in engine.explain_join("t").sources for found in source.misfits}
    assert reasons == {Misfit.VAST, Misfit.SURROGATE}


def test_a_count_of_a_field_counts_what_has_no_text() -> None:
    joins = "v|all = count x|<id> as a; w|<id> = copy x|<id> as a"
    engine, model = engine_with(joins), NaiveModel()
    for spec in parse(joins):
        model.add(spec)
    rows = {
        "x|1": r'{"a":"\ud800"}',
        "x|2": '{"a":1e9999999999}',
        "x|3": '{"a":null}',
        "x|4": '{"b":1}',
        "x|5": '{"a":5}',
    }
    put_all(engine, rows)
    for key, value in rows.items():
        model.put(key.encode(), value.encode())
    assert scan(engine, "v|") == {"v|all": "3"}
    assert scan(engine, "w|") == {"w|5": "5"}
    assert model.scan(b"v|", b"x") == [(b"v|all", b"3"), (b"w|5", b"5")]


@pytest.mark.parametrize(("operator", "result"), [("sum", "10000000007.5"), ("min", "-2.5"), ("max", "10000000000")])
def test_numbers_that_only_an_exponent_writes_are_left_out_of_sums_and_extremes(operator: str, result: str) -> None:
    """As texts they would come after all numbers: 5e-324 would be the greatest."""
    engine = engine_with(f"m|<a> = {operator} r|<a>|<id> as n")
    numbers = ["10", "1e10", "-2.5", "1e308", "5e-324", "1e400", "1" + "0" * 70]
    put_all(engine, {f"r|x|{at}": f'{{"n":{number}}}' for at, number in enumerate(numbers)})
    assert list(scan(engine, "m|").values()) == [result]
    put_all(engine, {"r|y|1": '{"n":"1e308"}', "r|y|2": '{"n":7}'})
    assert list(scan(engine, "m|y").values()) == ["1e308" if operator == "max" else "7"], "a text stays a text"
