"""The quick half of lenses beside the whole of them in Python: the same rows, or the same reason why there is none."""

from random import Random
from typing import Any

import pytest
from pequod_grammar import parse

from pequod.language.forms import TEXT_BYTES_MAX, Misfit
from pequod.language.many_records import show_all
from pequod.language.records import Lens, parse_value
from pequod.language.views import plain_join
from tests.engine.draw_records import draw_record
from tests.native.core import hot

assert hot.INTERFACE

KEYS = [b"s|x", b"s|1", b"s|01", b"s|x|1", b"s|01|x", b"s|1|1|1", b"s|", b"s", b"s|\xc3\xa9|", b"other|1"]
NUMBERS = [0, 7, -7, 42, 123, 10**19, 1 << 63, -(1 << 63), (1 << 64) - 1, 1.0, 1.5]
TEXTS = ["a", "é", "éé", "", "|", "a|b", "ab", "x" * TEXT_BYTES_MAX, "x" * (TEXT_BYTES_MAX + 1)]
TEXT_VALUES = [b'{"a":"%b","b":[1]}' % text.encode() for text in TEXTS]
#: Joins whose lenses have a quick half.
QUICK = [
    "t|<a>|<id> = copy s|<id> with a = <a>",
    "t|<a:2>|<id:2> = copy s|<id:2> with a = <a:2>",
    "t|<a:21>|<id> = copy s|<id> with a = <a:21>",
    "t|<a>|<id:2>|<of> = copy s|<id:2>|<of> with a = <a> as {a, c.d}",
    "t|<a>|<b>|<id> = copy s|<id> with b = <b>, a = <a> as b",
    "t|<a>|<b>|<id> = count s|<id> with b = <b>, a = <a> as b",
    "t|<id>|<a> = copy s|<id> with a = <a>",
    "t|<a> = copy s|x with a = <a>",
    "t|<id> = copy s|<id> as a",
    "t|<a:i64>|<id> = copy s|<id> with a = <a:i64>",
    "t|<a:i64>|<id> = copy s|<id> with . = <a:i64>",
    "t|<a>|<b:3>|<id> = count s|<id> with . = <a>, . = <b:3>",
    "t|<id>|<a:20> = check s|<id> with . = <a:20> copy p|<id>",
]
WHOLE_NUMBERS = [0, 7, -7, 123, 10**17, -(10**17), 10**18 - 1, 1 - 10**18, 10**18, -(10**18), (1 << 63) - 1, -(1 << 63)]
WHOLE = [
    *(b"%d" % number for number in WHOLE_NUMBERS),
    *b'-0|01|-01|00|-|+7|7 | 7|7.0|7e0|1e3|true|"7"|"a"|null|7,|7a|--7|18446744073709551615|0.5|-1.5'.split(b"|"),
]


def _values() -> list[bytes]:
    random = Random(5)
    numbers = [b'{"a":%b,"b":"b"}' % str(number).encode() for number in NUMBERS]
    texts = [b"", b"no record", b"[]", b'{"a":"a"}', b'{"a":"%b"}' % (b"7" * 16)]
    return [*texts, *numbers, *TEXT_VALUES, *WHOLE, *[draw_record(random) for _ in range(200)]]


@pytest.mark.parametrize("join", QUICK)
def test_the_quick_half_of_a_lens_sees_what_the_whole_sees(join: str) -> None:
    view, *_ = plain_join(*parse(join))[1]
    assert view is not None
    quick, whole = Lens(view), Lens(view)
    assert quick.quick is not None
    whole.quick = None
    row_count = misfit_count = 0
    for key in KEYS:
        for value in _values():
            shown = quick.show_row(key, value, parse_value)
            assert shown == whole.show_row(key, value, parse_value), (key, value)
            row_count += not isinstance(shown, Misfit)
            misfit_count += isinstance(shown, Misfit)
    assert row_count
    assert misfit_count


@pytest.mark.parametrize("join", QUICK)
def test_the_quick_half_of_a_lens_sees_many_rows_as_the_whole_does(join: str) -> None:
    view, *_ = plain_join(*parse(join))[1]
    assert view is not None
    quick, whole = Lens(view), Lens(view)
    whole.quick = None
    start = view.source.pattern.literal_prefix
    keys = [
        start,
        *[start + b"%03d" % number for number in range(400)],
        *[start + b"%02d" % number for number in range(9)],
    ]
    values = [draw_record(Random(number)) for number in range(len(keys))]
    values[: len(TEXT_VALUES)] = TEXT_VALUES
    values[100:102] = [b"no record", b"[]"]
    values[110 : 110 + len(WHOLE)] = WHOLE
    seen = [_show_all(lens, keys, values) for lens in (quick, whole)]
    assert seen[0] == seen[1]


def _show_all(
    lens: Lens, keys: list[bytes], values: list[bytes]
) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, Misfit]]]:
    misfits: list[tuple[bytes, Misfit]] = []
    found = show_all(lens, keys, values, lambda misfit, key: misfits.append((key, misfit)))
    counted = sorted(row for row in misfits if row[1] is not Misfit.NOT_SELECTED)
    return sorted(zip(*found, strict=True)), counted


@pytest.mark.parametrize(
    "join",
    [
        "t|<a:f64>|<id> = copy s|<id> with a = <a:f64>",
        "t|<a:f64>|<id> = copy s|<id> with . = <a:f64>",
        "t|<a>|<id> = copy s|<id> with . = <a> as .",
        "t|<a>|<id> = copy s|<id> with . = <a>, . > 1",
        "t|<a>|<id> = copy s|<id> with a = <a>, b exists",
        "t|<a>|<id> = copy s|<id> with c.d = <a>",
        "t|<a>|<id> = copy s|<id> with e[] = <a>",
        "t|<id>|x = copy s|<id>|<id> with a exists",
    ],
)
def test_other_lenses_have_no_quick_half(join: str) -> None:
    view, *_ = plain_join(*parse(join))[1]
    assert view is not None
    assert Lens(view).quick is None


def test_a_value_is_not_parsed_for_a_key_of_another_pattern() -> None:
    (view,) = plain_join(*parse("t|<a>|<id:2> = copy s|<id:2> with a = <a>"))[1]
    assert view is not None

    def refuse(value: bytes) -> None:
        raise AssertionError(value)

    assert Lens(view).show_row(b"s|123", b"{}", refuse) is Misfit.NOT_SELECTED


def test_what_a_parser_raises_is_raised() -> None:
    (view,) = plain_join(*parse("t|<a>|<id> = copy s|<id> with a = <a>"))[1]
    assert view is not None

    def refuse(value: bytes) -> None:
        raise ValueError(value)

    with pytest.raises(ValueError, match="text"):
        Lens(view).show_row(b"s|1", b"text", refuse)


FIELD = ("a", None, False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (((b"s|",) * (hot.PARTS_MAX + 1), (), (), 9, None), "a key has few parts"),
        (((b"s|",), (("a", 0, False),), (), 9, None), "a slot has a width"),
        (((b"s|",), ((b"a", None, False),), (), 9, None), "a field has a name"),
        (((b"s|",), (FIELD,) * (hot.PARTS_MAX + 1), (), 9, None), "a lens has few fields"),
        (((b"s|", None), (FIELD,), (b"s|", 3), 9, None), "there is no such part"),
        (((b"s|",), (), (), 9, ((None, "a"),) * (hot.PARTS_MAX + 1)), "a lens gives few fields"),
        (((b"s|",), (), (), 9, ("a",)), "a field has a beginning and a name"),
        (((b"s|",), (), (), 9, (("a", "a"),)), "a field begins with bytes"),
        (((b"s|",), (), (), 9, ((None, "a"), (b"b", "b"))), "one field is given alone"),
        (((b"s|",), (), (), 9, b"value"), "a lens gives a value"),
    ],
)
def test_a_lens_that_makes_no_sense_is_refused(arguments: tuple[Any, ...], why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        hot.QuickLens(*arguments)


@pytest.mark.parametrize("rows", [([b"s|1"], []), (b"s|1", [b"{}"])])
def test_many_rows_have_as_many_values(rows: tuple[Any, Any]) -> None:
    lens = hot.QuickLens((b"s|", None), (("a", None, False),), (b"s|", 1), 9, None)
    with pytest.raises(TypeError):
        lens.look_all(*rows, parse_value, None)
