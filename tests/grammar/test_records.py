"""The language of record fields: what parses, what is refused and how, and the way back to text."""

import json
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pequod_grammar import parse

from pequod.engine import JoinError, JoinSpec, Operator, Pattern, Slot, Source
from pequod.language.numbers import decode_f64, decode_i64, encode_f64, encode_i64
from pequod.language.rules import check_spec
from pequod.language.spec import (
    FORM_WIDTH,
    WHOLE,
    Bind,
    Comparator,
    Compare,
    CompareSlot,
    Condition,
    Exists,
    Given,
    NumberForm,
    OneField,
    Path,
    SomeFields,
)

DECLARED = {
    "by_author|<author>|<id> = copy article|<id> with author = <author> as {title, stats.votes}": None,
    'cheap|<price:8>|<id> = copy item|<id> with price = <price:8>, stock > 0, status = "open" as {name, price}': None,
    "tagged|<tag>|<time:10>|<id> = copy post|<id> with tags[] = <tag>, time = <time:10>": None,
    "revenue|<region>|<day:10> = sum order|<id> with region = <region>, day = <day:10> as amount": None,
    "review|<item>|<date>|<id> = check item|<item> with visible = true copy review|<id> with item = <item>, "
    "date = <date> as {subject, rating}": None,
    # Equal literals become the same text, and widths are shown wherever the slot is.
    "t|<a>|<n:i64> = copy x|<a> with n=<n>,p>=1.0,q != 1e2 as{a,b :c.d}": "t|<a>|<n:i64> = copy x|<a> "
    "with n = <n:i64>, p >= 1, q != 100 as {a, b: c.d}",
    't|<a> = copy x|<a> with <a>>="0", "a b"."c.d" exists, e = "\\u00e9;//" as "x"': "t|<a> = copy x|<a> "
    'with <a> >= "0", "a b"."c.d" exists, e = "é;//" as x',
    "t|<a> = copy x|<a> with exists exists, as = null, with = true as copy": "t|<a> = copy x|<a> with exists exists, "
    "as = null, with = true as copy",
    "top|<n:i64>|<a> = copy x|<a> with . = <n:i64>": None,
    't|<a> = copy x|<a> with .>=1.0,.!="." as {"." : ., v:.}': "t|<a> = copy x|<a> with . >= 1, "
    '. != "." as {".": ., v: .}',
    "t|<a> = sum x|<a> with . exists as .;": "t|<a> = sum x|<a> with . exists as .",
    "t|<a> = count x|<a> with n < -1.5 as f // and a comment": "t|<a> = count x|<a> with n < -1.5 as f",
}


@pytest.mark.parametrize(("text", "printed"), DECLARED.items())
def test_declarations_print_as_they_are_read(text: str, printed: str | None) -> None:
    (spec,) = parse(text)
    assert str(spec) == (printed or text)
    assert parse(str(spec)) == [spec]


def test_a_declaration_gives_conditions_and_fields() -> None:
    (spec,) = parse('t|<a>|<n:i64> = copy x|<a> with b.c = <n>, d[] = <a>, e < 1, f exists, <a> != "z" as {g, h: i.j}')
    number = Slot("n", FORM_WIDTH, NumberForm.I64)
    assert spec.output.parts[-1] == number
    (source,) = spec.sources
    assert source.conditions == (
        Bind(Path(("b", "c")), number),
        Bind(Path(("d",)), Slot("a"), is_each=True),
        Compare(Path(("e",)), Comparator.LESS, "1"),
        Exists(Path(("f",))),
        CompareSlot("a", Comparator.NOT_EQUAL, '"z"'),
    )
    assert source.given == SomeFields((("g", Path(("g",))), ("h", Path(("i", "j")))))
    assert parse("t|<a> = sum x|<a> as v.w")[0].sources[0].given == OneField(Path(("v", "w")))


def test_true_and_one_are_different_literals() -> None:
    assert parse("t|<a> = copy x|<a> with b = true") != parse("t|<a> = copy x|<a> with b = 1")
    assert parse("t|<a> = copy x|<a> with b = 1") == parse("t|<a> = copy x|<a> with b = 1.0")


def test_spans_hold_conditions_and_fields() -> None:
    text = "t|<a> = copy x|<a>\n  with b > 1 as {c};"
    (spec,) = parse(text)
    (source,) = spec.sources
    assert source.span is not None
    assert text[source.span.start : source.span.end] == "copy x|<a>\n  with b > 1 as {c}"
    condition = source.conditions[0]
    assert condition.span is not None
    assert text[condition.span.start : condition.span.end] == "b > 1"
    assert (condition.span.line, condition.span.column) == (2, 8)


OPERANDS = "write a number, a text in double quotes, true, false, null, or a slot such as <author>"
LITERAL = "a literal is a number, a text in double quotes, true, false or null"
CONDITION = 'write, for example, `author = <author>`, `stock > 0`, `status = "open"` or `title exists`'
ORDER = "after its pattern, a source has `with` and its conditions, then `as` and its fields, each once"
COMPARED = "write `field = <slot>`, `field > 0` or `field exists`"
#: What follows `t|<a> = copy x|<a> `, 19 characters -> column, reason and hint.
REFUSED = {
    "with": (24, "the text ends where a condition is expected", CONDITION),
    "with a": (26, "the text ends where a comparison is expected", COMPARED),
    "with a is 3": (27, "'is' stands where a comparison is expected", COMPARED),
    "with a =": (28, "the text ends where a literal or a slot is expected", OPERANDS),
    "with a = ,": (29, "',' stands where a literal or a slot is expected", OPERANDS),
    "with . = <a>, b = <c>": (
        9,
        "the source x|<a> looks at `.`, a value that is no record, and at `b`, a field of one",
        "a value is one or the other: write two joins, or leave one out",
    ),
    "with .[] = <b>": (25, "'.[]' is no path to a field", "`[]` at the end goes through the elements of an array"),
    "with .a = <b>": (25, "'.a' is no path to a field", "the names of fields stand between single dots: `stats.votes`"),
    "with . = .": (29, "'.' is no literal", f'{LITERAL}; write "."'),
    "with . > true": (
        25,
        "true is neither less nor greater than anything",
        "true, false and null are compared with `=` and `!=` alone",
    ),
    "as {.}": (24, "`.` has no name of its own in an object", "write one: `as {value: .}`"),
    "as {.: a}": (24, "'.' is no name of a field", "write `name: path`, such as `votes: stats.votes`"),
    "as {.a}": (24, "'.a' is no path to a field", "the names of fields stand between single dots: `stats.votes`"),
    "with a = b": (29, "'b' is no literal", f'{LITERAL}; write "b"'),
    "with a = True": (29, "'True' is no literal", "write `true`"),
    "with a = None": (29, "'None' is no literal", "write `null`"),
    "with a = 'x'": (29, "''x'' is no literal", LITERAL),
    "with a = 01": (29, "'01' is no literal", f'{LITERAL}; write "01"'),
    "with a = 1e9999999999": (29, "'1e9999999999' is no literal", f'{LITERAL}; write "1e9999999999"'),
    'with a = "x': (29, "the text is not closed", 'end it with `"`, on the same line'),
    'with "a = 1': (25, "the text is not closed", 'end it with `"`, on the same line'),
    'with a = "\\q"': (29, '"\\q" is no text', 'escapes are those of JSON, such as \\n, \\" and \\u00e9'),
    'with a = "\\ud800"': (29, '"\\ud800" is no text', 'escapes are those of JSON, such as \\n, \\" and \\u00e9'),
    "with a = [1]": (29, "a field is not compared with '[1]'", LITERAL),
    "with a == 1": (27, "'==' is no comparison", "write `=`"),
    "with a <> 1": (27, "'<>' is no comparison", "write `!=`"),
    "with a < true": (
        25,
        "true is neither less nor greater than anything",
        ("true, false and null are compared with `=` and `!=` alone"),
    ),
    "with a = 1 and b = 2": (
        31,
        "'and' stands after a condition",
        "a `,` separates conditions, all of which are to hold",
    ),
    "with a = 1 b = 2": (31, "'b' stands after a condition", "a `,` separates conditions, all of which are to hold"),
    "with a = 1,": (31, "the text ends where a condition is expected", CONDITION),
    "with a = 1 with b = 2": (31, "'with' stands where the next source is expected", ORDER),
    "as a with b = 1": (25, "'with' stands where the next source is expected", ORDER),
    "as a as b": (25, "'as' stands where the next source is expected", ORDER),
    "with a = 1 u|<b> = copy y|<b>": (31, "a new join starts before the last one is ended", "put a `;` between them"),
    "where a = 1": (20, "'where' is no operator", "did you mean `with`? Conditions follow it"),
    "with a > <c>": (
        25,
        "a field cannot be compared with the slot <c> by `>`",
        ("`=` gives the slot the field's value; to select, compare with a literal: `a > 10`"),
    ),
    "with a = <c:i32>": (
        29,
        "'i32' is no form of numbers for the slot <c>",
        ("write <c:i64> for integers, <c:f64> for numbers, or a width in bytes"),
    ),
    "with a = <1>": (29, "'1' is no name for a slot", "use letters, digits and `_`, and no digit in front"),
    "with <a> > 5": (31, "the slot <a> is compared with a number or a word", 'slots are text: write `<a> > "5"`'),
    "with <a> > <c>": (
        25,
        "two slots are not compared: <a> > <c>",
        ("write the same name in both places for slots that are to be equal"),
    ),
    'with <q> > "5"': (
        25,
        "<q> is no slot of the keys x|<a>",
        ("before a comparison stands a field, as in `stock > 0`, or a slot of this source's keys"),
    ),
    "with a[] = 1": (
        25,
        "the elements of 'a' are not compared",
        ("give them to a slot, `a[] = <element>`, which the reader or another source then fixes"),
    ),
    "with a[].b = <c>": (25, "'a[].b' goes on after `[]`", "`[]` ends a path: `tags[] = <tag>`"),
    "with a[0] = <c>": (25, "'a[0]' is no path to a field", "`[]` at the end goes through the elements of an array"),
    "with a[] exists": (
        25,
        "'a[]' goes into an array, which only `a[] = <slot>` can",
        ("leave out the `[]`: `a` is the whole array"),
    ),
    "with a[] = <c>, b[] = <d>": (
        36,
        "the source x|<a> goes into two arrays: a[] = <c>, and b[] = <d>",
        ("a source goes into one array, and gives a row for each of its elements"),
    ),
    "with a. = 1": (25, "'a.' is no path to a field", "the names of fields stand between single dots: `stats.votes`"),
    "with a..b = 1": (
        25,
        "'a..b' is no path to a field",
        "the names of fields stand between single dots: `stats.votes`",
    ),
    'with "\\x" = 1': (25, '"\\x" is no text', 'escapes are those of JSON, such as \\n, \\" and \\u00e9'),
    "with 1a = 1": (
        25,
        "'1a' is no name of a field",
        ('put a name in double quotes unless it is letters, digits, `_` and `-`: "1a"'),
    ),
    "with a = <c:4>, b = <c:5>": (
        9,
        "the slot <c> has two widths: 4 and 5",
        ("a slot has one width in the whole join; give it once"),
    ),
    "as": (
        22,
        "the text ends where fields are expected",
        "write one field, `as amount`, or several, `as {title, votes}`",
    ),
    "as {}": (24, "'}' stands where a field is expected", "such as `as {title, votes}`"),
    "as {a": (
        25,
        "the text ends inside of `{ }`",
        "fields stand between commas, and `}` ends them: `as {title, votes}`",
    ),
    "as {a b}": (
        26,
        "'b}' stands inside of `{ }`",
        "fields stand between commas, and `}` ends them: `as {title, votes}`",
    ),
    "as {a.b: c}": (24, "'a.b' is the name of one field", "write `name: path`, such as `votes: stats.votes`"),
    "as {a, b.a}": (
        20,
        "`as` gives the name 'a' to two fields",
        "give one of them another name: `as {a, other: path}`",
    ),
    "as b[]": (
        23,
        "'b[]' goes into an array, which only `b[] = <slot>` can",
        "leave out the `[]`: `b` is the whole array",
    ),
    "as a, b": (24, "',' stands after one field", "several fields stand in `{ }`: `as {title, votes}`"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items())
def test_mistakes_are_shown_with_place_reason_and_hint(text: str, expected: tuple[int, str, str]) -> None:
    with pytest.raises(JoinError) as caught:
        parse(f"t|<a> = copy x|<a> {text}")
    error = caught.value
    assert error.span is not None
    assert (error.span.column, error.reason, error.hint) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "t|<a> = unless x|<a> as b copy y|<a>",
            "the source unless x|<a> gives no value, so that `as b` has no meaning",
        ),
        ("t|<a> = sum x|<a> as {b}", "sum takes one field, not an object of some"),
        ("t|<a> = count x|<a> as {b, c}", "count takes one field, not an object of some"),
        ("t|<b> = copy x|<a> with c = <d>", "no source gives a value to <b> of the output t|<b>"),
        ("t|<a:i64> = copy x|<a:8>", "the slot <a> has two widths: i64 and 8"),
    ],
)
def test_what_has_no_meaning_is_refused(text: str, reason: str) -> None:
    with pytest.raises(JoinError) as caught:
        parse(text)
    assert caught.value.reason == reason


def _source(*conditions: Condition, given: Given | None = None, operator: Operator = Operator.COPY) -> Source:
    return Source(operator, Pattern((b"x|", Slot("a"))), None, conditions, given)


A = Path(("a",))


@pytest.mark.parametrize(
    "source",
    [
        _source(Bind(A, Slot("1"))),
        _source(Bind(A, Slot("b", 0))),
        _source(Bind(A, Slot("b", 8, NumberForm.I64))),
        _source(Bind(WHOLE, Slot("b"), is_each=True)),
        _source(Bind(WHOLE, Slot("b")), Exists(A)),
        _source(Bind(WHOLE, Slot("b")), given=OneField(A)),
        _source(Exists(A), given=OneField(WHOLE)),
        _source(given=SomeFields((("a", WHOLE), ("b", A)))),
        _source(Compare(A, Comparator.LESS, "null")),
        _source(Compare(A, Comparator.LESS, "[1]")),
        _source(Compare(A, Comparator.LESS, "no")),
        _source(Compare(A, Comparator.EQUAL, "\ud800")),
        _source(CompareSlot("a", Comparator.EQUAL, "1")),
        _source(CompareSlot("q", Comparator.EQUAL, '"1"')),
        _source(*[Exists(A)] * 33),
        _source(given=SomeFields(())),
        _source(given=SomeFields(tuple((str(number), A) for number in range(33)))),
        _source(given=SomeFields(()), operator=Operator.SUM),
    ],
)
def test_a_spec_that_no_text_gives_is_refused(source: Source) -> None:
    with pytest.raises(JoinError):
        check_spec(JoinSpec(Pattern((b"t|", Slot("a"))), (source,)))


NAMES = st.from_regex(r"[a-d]", fullmatch=True)
FIELD_NAMES = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    ["a", "votes", "net-price", "as", "with", "exists", "copy", "1", "a.b", 'a"b', "[]", "#", "//", "é", ""]
)
PATHS = st.lists(FIELD_NAMES, min_size=1, max_size=3).map(lambda names: Path(tuple(names)))
FORMS = st.sampled_from([(None, None), (1, None), (10, None), (16, NumberForm.I64), (16, NumberForm.F64)])
STRINGS = st.text(st.characters(codec="utf-8"), max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False))
NUMBERS = st.sampled_from(["0", "1", "-1.5", "1e300", "18446744073709551615", "-9223372036854775808", "1e-7"])
ORDERED = st.sampled_from(list(Comparator))
SAME = st.sampled_from([Comparator.EQUAL, Comparator.NOT_EQUAL])


@st.composite
def record_joins(draw: st.DrawFn) -> JoinSpec:
    """Draw any well-formed join with one source that looks at records."""
    shapes = draw(st.dictionaries(NAMES, FORMS, min_size=1, max_size=4))
    slots = [Slot(name, *shape) for name, shape in shapes.items()]
    keyed = draw(st.lists(st.sampled_from(slots), max_size=2, unique=True))
    parts: list[bytes | Slot] = [b"x|z"]
    for slot in keyed:
        last = parts[-1]
        parts = [*parts, b"|", slot] if isinstance(last, Slot) else [*parts[:-1], last + b"|", slot]
    is_whole = draw(st.booleans())
    paths = st.just(WHOLE) if is_whole else PATHS
    conditions: list[Condition] = draw(
        st.lists(
            st.builds(Compare, paths, ORDERED, NUMBERS | STRINGS)
            | st.builds(Compare, paths, SAME, st.sampled_from(["true", "false", "null"]))
            | st.builds(Exists, paths)
            | st.builds(Bind, paths, st.sampled_from(slots)),
            max_size=3,
        )
    )
    if keyed:
        names = st.sampled_from([slot.name for slot in keyed])
        conditions += draw(st.lists(st.builds(CompareSlot, names, ORDERED, STRINGS), max_size=1))
    if not is_whole and draw(st.booleans()):
        conditions.append(Bind(draw(PATHS), draw(st.sampled_from(slots)), is_each=True))
    fields = st.dictionaries(FIELD_NAMES, paths, min_size=1, max_size=3)
    given_fields: Given | None = draw(
        st.none() | st.builds(OneField, paths) | fields.map(lambda found: SomeFields(tuple(found.items())))
    )
    source = Source(Operator.COPY, Pattern(tuple(parts)), None, tuple(conditions), given_fields)
    shown: list[bytes | Slot] = [b"t|"]
    for slot in dict.fromkeys(source.slots()):
        shown += [slot, b"|"]
    return JoinSpec(Pattern(tuple(shown)), (source,))


@given(record_joins())
def test_any_join_over_records_survives_print_and_parse(spec: JoinSpec) -> None:
    check_spec(spec)
    assert parse(str(spec)) == [spec]


@given(st.lists(record_joins(), max_size=3))
def test_several_survive_together(specs: list[JoinSpec]) -> None:
    assert parse(" ;\n".join(map(str, specs))) == specs


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-1, 0, 1])))
def test_the_digits_of_integers_sort_as_they_do(numbers: list[int]) -> None:
    assert sorted(map(encode_i64, numbers)) == [encode_i64(number) for number in sorted(numbers)]
    assert [decode_i64(encode_i64(number).encode()) for number in numbers] == numbers


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([-0.0, 0.0, 5e-324])))
def test_the_digits_of_numbers_sort_as_they_do(numbers: list[float]) -> None:
    assert sorted(map(encode_f64, numbers)) == [encode_f64(number) for number in sorted(numbers)]
    assert [decode_f64(encode_f64(number)) for number in numbers] == numbers
    assert encode_f64(-0.0) == encode_f64(0)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_an_integer_beyond_64_bits_has_no_digits(number: int) -> None:
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        encode_i64(number)


@pytest.mark.parametrize("number", [2**53 + 1, 10**400, math.inf, math.nan])
def test_a_number_that_no_double_holds_has_no_digits(number: float) -> None:
    with pytest.raises(ValueError, match="a double does not hold"):
        encode_f64(number)


@pytest.mark.parametrize("digits", ["", "8", "800000000000000G", "8" * 17, "+000000000000001", b"\xff" * 16])
def test_other_digits_are_refused(digits: str | bytes) -> None:
    for decode in (decode_i64, decode_f64):
        with pytest.raises(ValueError, match="16 hexadecimal digits"):
            decode(digits)
    with pytest.raises(ValueError, match="digits of a number"):
        decode_f64("f" * 16)
