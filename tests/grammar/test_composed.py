"""The language of values with fields of several sources: what parses, and what is refused and how."""

import pytest
from pequod_grammar import parse

from pequod.engine import JoinError, Operator
from pequod.language.shadowing import hides

DECLARED = [
    "t|<a>|<b> = copy x|<a>|<b> as {c} check y|<b> as {d, e: f.g}",
    't|<a> = check? y|all with c > 1 as {d} copy x|<a> as {c} check? x|<a>|1 as {"a b": .}',
    't|<a> = pull copy x|<a> as {c} check? y|<a> with <a> >= "0", d exists as {d} keep last 2',
    "t|<a>|<b> = check y|<b> with c = <a> as {d} copy x|<b> as {c}",
]


@pytest.mark.parametrize("text", DECLARED)
def test_declarations_print_as_they_are_read(text: str) -> None:
    (spec,) = parse(text)
    assert spec.is_composed
    assert str(spec) == text


def test_a_question_mark_ends_the_operator() -> None:
    (spec,) = parse("t|<a> = copy x|<a> as {b} check? check?|<a> as {c}")
    assert [source.operator for source in spec.sources] == [Operator.COPY, Operator.OPTIONAL]
    assert spec.sources[1].pattern.table == b"check?"


_COPY = "t|<a> = copy x|<a> as {b}"
REFUSED = {
    f"{_COPY} check y|<a> as c": (
        39,
        "the source check y|<a> gives fields of the value, not the value itself",
        "name them in braces: `as {c}`",
    ),
    f"{_COPY} check y|<a> as .": (
        39,
        "the source check y|<a> gives fields of the value, not the value itself",
        "name it: `as {value: .}`",
    ),
    f"{_COPY} unless y|<a> as {{c}}": (
        40,
        "the source unless y|<a> gives no value, so that `as {c}` has no meaning",
        "write `as` after a source whose rows are there",
    ),
    f"{_COPY} check y|<a> as {{b}}": (
        39,
        "two sources give a field with the name 'b'",
        "give one of them another name: `as {other: b}`",
    ),
    f"{_COPY} check? y|<a>": (
        27,
        "`check? y|<a>` changes nothing: it takes no row away, and gives no field",
        "write the fields that it gives, `check? y|<a> as {name}`, or `check` for rows that have to be there",
    ),
    f"{_COPY} check? y|<a> with c = <a> as {{d}}": (
        45,
        "`c = <a>` gives <a> no value where the record is missing",
        "a slot is never null: give the field as one of the value, `as {c}`",
    ),
    f"{_COPY} check? y|<c> as {{d}}": (
        27,
        "no source gives a value to <c>, so that `check? y|<c> as {d}` may have several records of a row",
        "each slot of a `check?` has a value from a source before it",
    ),
    "t|<a> = check? y|<a> as {d} copy x|<a> as {b}": (
        9,
        "<a> has no value where `check? y|<a> as {d}` is looked at",
        "write it after the source that gives <a> a value",
    ),
    f"{_COPY} check y|<a>|<c> as {{d}}": (
        27,
        "an output key may have several records of `check y|<a>|<c> as {d}`: the output t|<a> has no <c>",
        "a value with fields of several sources needs all slots of the join in its key",
    ),
    "t|<a> = copy x|<a>|<c> as {b} check y|<a> as {d}": (
        9,
        "an output key may have several records of `copy x|<a>|<c> as {b}`: the output t|<a> has no <c>",
        "a value with fields of several sources needs all slots of the join in its key",
    ),
    "t|<a> = copy x|<a> check y|<a> as {d}": (
        9,
        "`check y|<a> as {d}` gives fields, and `copy x|<a>` gives no object to which they could be added",
        "say which of its fields the value has: `copy x|<a> as {title}`",
    ),
    "t|<a> = copy x|<a> as b check? y|<a> as {d}": (
        9,
        "`check? y|<a> as {d}` gives fields, and `copy x|<a> as b` gives no object to which they could be added",
        "say which of its fields the value has: `copy x|<a> as {title}`",
    ),
    "t|<a> = sum x|<a> as b check y|<a> as {d}": (
        24,
        "`check y|<a> as {d}` gives fields, and `sum` gives no object to which they could be added",
        "compute it in another join, and copy its rows: `copy karma|<author> as {karma: .}`",
    ),
    "t|<a> = check y|<a> as {d} check? z|<a> as {e}": (
        1,
        "the join has no value source: all its sources are `check`, `check?` or `unless`",
        "exactly one source is copy, count, sum, avg, min or max; it gives the value",
    ),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items())
def test_a_misuse_is_shown_with_its_place_and_a_hint(text: str, expected: tuple[int, str, str]) -> None:
    with pytest.raises(JoinError) as caught:
        parse(text)
    error = caught.value
    assert error.span is not None
    assert (error.span.column, error.reason, error.hint) == expected


def test_a_record_that_may_be_missing_hides_no_join_less() -> None:
    outer, inner = parse(f"{_COPY} check? y|<a> as {{c}}; {_COPY} check y|<a> as {{c}}")
    assert hides(outer, inner)
    assert not hides(inner, outer)
