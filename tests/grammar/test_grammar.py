"""The language: what parses, what is refused and how, and the way back to text."""

import re
from decimal import Decimal
from pathlib import Path
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pequod_grammar import parse, parse_one, parse_some

from pequod.engine import (
    JoinError,
    JoinSpec,
    Operator,
    Pattern,
    Pull,
    Push,
    Slot,
    Snapshot,
    Source,
)
from pequod.language.rules import check_spec
from tests.engine.draw import draw_join

REFERENCE = Path(__file__).parents[2] / "grammar" / "README.md"


def test_a_declaration_gives_a_spec() -> None:
    (spec,) = parse("t|<user:8>|<time:10> = pull check s|<user> copy p|<user>|<time>;")
    user, time = Slot("user", 8), Slot("time", 10)
    assert spec == JoinSpec(
        Pattern((b"t|", user, b"|", time)),
        (
            Source(Operator.CHECK, Pattern((b"s|", user))),
            Source(Operator.COPY, Pattern((b"p|", user, b"|", time))),
        ),
        Pull(),
    )


@pytest.mark.parametrize(
    ("text", "maintenance"),
    [
        ("a|<x> = copy b|<x>", Push()),
        ("a|<x> = push copy b|<x>", Push()),
        ("a|<x> = pull copy b|<x>", Pull()),
        ("a|<x> = snapshot 2.5 copy b|<x>", Snapshot(Decimal("2.5"))),
    ],
)
def test_a_declaration_names_its_maintenance(text: str, maintenance: object) -> None:
    assert parse(text)[0].maintenance == maintenance


def test_several_declarations_comments_and_layout() -> None:
    text = """
    // a comment; with = and <signs
    copy|<copy> = copy count|<copy>;;   # a table may be named like an operator
    u|http://x|<a>|#1 =
        min v|<a>|x//y;c|all = count v|<a>    // a literal may hold // and #
    """
    specs = parse(text)
    assert [str(spec) for spec in specs] == [
        "copy|<copy> = copy count|<copy>",
        "u|http://x|<a>|#1 = min v|<a>|x//y",
        "c|all = count v|<a>",
    ]


def test_a_text_of_comments_declares_nothing() -> None:
    assert parse("") == parse(" ; ;; ") == parse("# nothing\n// at all") == []


def test_spans_point_at_the_text() -> None:
    text = "a|<x> = copy b|<x>;\n\n  c|<y> = pull check d|<y>\n copy e|<y>;"
    _, spec = parse(text)
    assert spec.span is not None
    assert text[spec.span.start : spec.span.end] == "c|<y> = pull check d|<y>\n copy e|<y>"
    assert (spec.span.line, spec.span.column) == (3, 3)
    source = spec.sources[1]
    assert source.span is not None
    assert source.pattern.span is not None
    assert text[source.span.start : source.span.end] == "copy e|<y>"
    assert text[source.pattern.span.start : source.pattern.span.end] == "e|<y>"


OPERATORS = "operators are check, check?, copy, count, sum, avg, min, max, unless"
SOURCE = "a source is an operator and a pattern: check, check?, copy, count, sum, avg, min, max, unless"
EXAMPLE = "a join reads `output = check source copy source;`"
#: text -> the whole message; ^ and ~ mark the place in the text's line.
REFUSED = {
    "t|<a>": f"1:6 the text ends where `=` is expected after the output pattern\nhint: {EXAMPLE}",
    "t|<a> t|<b> = copy x|<b>": f"1:7 't|<b>' stands where `=` is expected after the output pattern\nhint: {EXAMPLE}",
    "= copy x|<a>": f"1:1 '=' stands where a pattern is expected\nhint: {EXAMPLE}",
    "t|<a> =": "1:8 the text ends where a source is expected\nhint: a source is an operator and a pattern: "
    "check, check?, copy, count, sum, avg, min, max, unless",
    "t|<a> = ;": "1:9 ';' stands where a source is expected\nhint: a source is an operator and a pattern: "
    "check, check?, copy, count, sum, avg, min, max, unless",
    "t|<a> = copi x|<a>": f"1:9 'copi' is no operator\nhint: did you mean `copy`? {OPERATORS}",
    "t|<a> = psuh copy x|<a>": f"1:9 'psuh' is no operator\nhint: did you mean `push`? {OPERATORS}",
    "t|<a> = copy x|<a> zip y|<a>": f"1:20 'zip' is no operator\nhint: {OPERATORS}",
    "t|<a> = COPY x|<a>": f"1:9 'COPY' is no operator\nhint: did you mean `copy`? {OPERATORS}",
    "t|<a> = x|<a>": f"1:9 'x|<a>' has no operator before it\nhint: {SOURCE}",
    "t|<a> = copy check x|<a>": f"1:20 'x|<a>' has no operator before it\nhint: {SOURCE}",
    "t|<a> = copy x|<a> pull": "1:20 'pull' stands where the next source is expected\nhint: push, pull or snapshot "
    "stands once, right after the `=`",
    "t|<a> = 2.5 copy x|<a>": f"1:9 '2.5' is no operator\nhint: {OPERATORS}",
    "t|<a> = copy ;": f"1:14 ';' stands where a pattern is expected\nhint: {EXAMPLE}",
    "t|<a> = copy": f"1:13 the text ends where a pattern is expected\nhint: {EXAMPLE}",
    "t|<a> = copy x|<a> =": "1:20 '=' stands where the next source is expected\nhint: a source is an operator and a "
    "pattern: check, check?, copy, count, sum, avg, min, max, unless",
    "t|<a> = copy x|<a> u|<b> = copy y|<b>": "1:20 a new join starts before the last one is ended\nhint: put a `;` "
    "between them",
    "t|<a> = copy x|<a>\n2|<b> = copy y|<b>": "2:1 a new join starts before the last one is ended\nhint: put a `;` "
    "between them",
    "t|<a> = snapshot copy x|<a>": "1:18 'copy' stands where the age of the snapshot is expected\nhint: write seconds: "
    "`snapshot 2.5`",
    "t|<a> = snapshot": "1:17 the text ends where the age of the snapshot is expected\nhint: write seconds: "
    "`snapshot 2.5`",
    "t|<a> = snapshot 0 copy x|<a>": "1:18 '0' is no age for a snapshot\nhint: write positive seconds: `snapshot 2.5`",
    "t|<a> = snapshot 1.2.3 copy x|<a>": "1:18 '1.2.3' is no age for a snapshot\nhint: write positive seconds: "
    "`snapshot 2.5`",
    "t|<a> = snapshot 1_0 copy x|<a>": "1:18 '1_0' is no age for a snapshot\nhint: write positive seconds: "
    "`snapshot 2.5`",
    "t|<a> = snapshot 1\u0663 copy x|<a>": "1:18 '1\u0663' is no age for a snapshot\nhint: write positive seconds: "
    "`snapshot 2.5`",
    "t|<a> = snapshot -1 copy x|<a>": "1:18 '-1' is no age for a snapshot\nhint: write positive seconds: "
    "`snapshot 2.5`",
    "t|<a b> = copy x|<a>": "1:3 the slot is not closed\nhint: end it with `>`: <name> or <name:width>, without white "
    "space",
    "t|<a = copy x|<a>": "1:3 the slot is not closed\nhint: end it with `>`: <name> or <name:width>, without white space",
    "t|a> = copy x|<a>": "1:4 there is no slot to close\nhint: a slot starts with `<`: <name> or <name:width>",
    "t|<> = copy x|<a>": "1:3 the slot has no name\nhint: name it: <poster> or <time:10>",
    "t|<1a> = copy x|<a>": "1:3 '1a' is no name for a slot\nhint: use letters, digits and `_`, and no digit in front",
    "t|<a:ten> = copy x|<a>": "1:3 'ten' is no width for the slot <a>\nhint: a width is a whole number of bytes, 1 to 4096",
    "t|<a:0> = copy x|<a>": "1:3 '0' is no width for the slot <a>\nhint: a width is a whole number of bytes, 1 to 4096",
    "t|<a:2> = copy x|<a:3>": "1:16 the slot <a> has two widths: 2 and 3\nhint: a slot has one width in the whole join; "
    "give it once",
    "t|\a = copy x|<a>": "1:3 the character '\\x07' cannot stand in a pattern\nhint: use visible characters",
    "<a>|t = copy x|<a>": "1:1 the pattern <a>|t starts with a slot\nhint: start it with the name of a table and a `|`, "
    "such as `p|`",
    "t<a> = copy x|<a>": "1:1 the pattern t<a> does not start with the name of a table and a `|`\nhint: the part before "
    "the first `|` is the table; it is a literal and not empty, such as `p|`",
    "t|<a> = copy |<a>": "1:14 the pattern |<a> does not start with the name of a table and a `|`\nhint: the part before "
    "the first `|` is the table; it is a literal and not empty, such as `p|`",
    "t|<a><b> = copy x|<a>|<b>": "1:1 the slot <a> in t|<a><b> never ends: <b> follows it instead of a `|`\nhint: put a "
    "`|` after it, or give it a width, such as <a:8>",
    "t|<a>x = copy x|<a>": "1:1 the slot <a> in t|<a>x never ends: 'x' follows it instead of a `|`\nhint: put a `|` after "
    "it, or give it a width, such as <a:8>",
    "t|<a>|<b> = copy x|<a>": "1:1 no source gives a value to <b> of the output t|<a>|<b>\nhint: every slot of the output "
    "must occur in a source; is it spelled the same there?",
    "t|<a> = check x|<a>": "1:1 the join has no value source: all its sources are `check`, `check?` or `unless`\nhint: exactly one source is "
    "copy, count, sum, avg, min or max; it gives the value",
    "t|<a> = copy x|<a> min y|<a>": "1:20 the join has 2 value sources: copy x|<a>, min y|<a>\nhint: exactly one source "
    "gives the value; make the others `check`",
    "t|<a> = copy x|<a>"
    + " check y|<a>" * 8: "1:104 the join has 9 sources; 8 are the most\nhint: compute a part of it "
    "in another join and read its output",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_shown_with_its_place_and_a_hint(text: str) -> None:
    with pytest.raises(JoinError) as caught:
        parse(text)
    error = caught.value
    assert error.span is not None
    shown = f"{error.span.line}:{error.span.column} {error.reason}" + (f"\nhint: {error.hint}" if error.hint else "")
    assert shown == REFUSED[text]


def test_a_message_shows_the_line_and_a_caret() -> None:
    with pytest.raises(JoinError) as caught:
        parse("a|<x> = copy b|<x>;\n\tc|<x> = chek d|<x> copy e|<x>;\n")
    assert str(caught.value) == (
        "line 2, column 10: 'chek' is no operator\n"
        "    \tc|<x> = chek d|<x> copy e|<x>;\n"
        "    \t        ^^^^\n"
        f"hint: did you mean `check`? {OPERATORS}"
    )


X, Y = Slot("x"), Slot("y")
GOOD = Source(Operator.COPY, Pattern((b"a|", X)))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (JoinSpec(Pattern(()), (GOOD,)), "the pattern is empty"),
        (JoinSpec(Pattern((b"t|", Slot("no name"))), (GOOD,)), "no name for a slot"),
        (JoinSpec(Pattern((b"t|", Slot("x", 5000))), (GOOD,)), "cannot be 5000 bytes wide"),
        (JoinSpec(Pattern((b"t|", Slot("x", 3))), (GOOD,)), "two widths: 3 and none"),
        (JoinSpec(Pattern((b"t|", X)), (GOOD,), Snapshot(Decimal(0))), "positive number of seconds"),
        (JoinSpec(Pattern((b"t|", X)), (GOOD,), Snapshot(Decimal("NaN"))), "positive number of seconds"),
        (JoinSpec(Pattern((b"t|", X)), ()), "the join has no sources"),
        (JoinSpec(Pattern((b"t|", b"q|", X)), (GOOD,)), "two literals stand side by side in the pattern t|q|<x>"),
        (JoinSpec(Pattern((b"t|", X, b"")), (GOOD,)), "has an empty literal"),
        (JoinSpec(Pattern((b"", b"t|", X)), (GOOD,)), "has an empty literal"),
    ],
)
def test_specs_made_by_hand_keep_the_same_rules(spec: JoinSpec, reason: str) -> None:
    with pytest.raises(JoinError, match=re.escape(reason)):
        check_spec(spec)


@given(st.randoms(use_true_random=False))
def test_what_is_printed_parses_to_the_same(random: Random) -> None:
    spec = draw_join(random, snapshots=True)
    assert parse(str(spec)) == [spec]


PIECES = st.sampled_from(
    ["t|<a>", "=", " ", "\n", ";", "copy", "check", "pull", "snapshot", "2.5", "<", ">", ":", "|", "//", "#", "é", "\0"]
)


@given(st.lists(PIECES, max_size=12).map("".join) | st.lists(PIECES, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_gives_joins_or_a_join_error(text: str) -> None:
    try:
        specs = parse(text)
    except JoinError as error:
        assert error.reason
        assert error.text == text
        assert error.span is not None
        assert str(error)
    else:
        assert [parse(str(spec)) for spec in specs] == [[spec] for spec in specs]


def _examples(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", REFERENCE.read_text(), re.DOTALL)


def test_the_references_joins_are_joins() -> None:
    examples = _examples("cachejoin")
    assert len(examples) >= 8
    for example in examples:
        assert parse(example), example


def test_the_references_refusals_are_refused() -> None:
    lines = [line for block in _examples("refused") for line in block.splitlines() if line.strip()]
    assert len(lines) >= 8
    for line in lines:
        with pytest.raises(JoinError):
            parse(line)


def test_the_references_results_are_what_the_engine_says() -> None:
    """Blocks of rows: lines of `put KEY VALUE`, `rm KEY` and `scan PREFIX`, each scan followed by its rows."""
    from pequod.engine import Engine, prefix_end

    blocks = re.findall(r"```cachejoin\n([^`]*)```\n\n```rows\n(.*?)```", REFERENCE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    for joins, lines in blocks:
        engine = Engine()
        engine.add_joins(parse(joins))
        expected: list[str] = []
        shown: list[str] = []
        for line in lines.splitlines():
            word, _, rest = line.partition(" ")
            if word == "put":
                key, _, value = rest.partition(" ")
                engine.put(key.encode(), value.encode())
            elif word == "rm":
                assert engine.remove(rest.encode())
            elif word == "scan":
                assert shown == expected
                rows = engine.scan(rest.encode(), prefix_end(rest.encode()))
                shown = [f"{key.decode()} {value.decode()}" for key, value in zip(*rows, strict=True)]
                expected = []
            else:
                expected.append(line.strip())
        assert shown == expected, joins


@pytest.mark.parametrize(
    ("text", "word", "hint"),
    [
        ("t|<a> = copy x|<a> limit 10", "limit", "scan(first, last, limit=10)"),
        ("t|<a> = copy x|<a> LIMIT 10", "LIMIT", "scan(first, last, limit=10)"),
        ("t|<a> = copy x|<a> with b = 1 limit 10", "limit", "scan(first, last, limit=10)"),
        ("t|<a> = copy x|<a> as b order by b", "order", "put first in the output"),
        ("t|<a> = average x|<a> as b", "average", "the operator is `avg`"),
        ("t|<a> = check y|<a> mean x|<a>", "mean", "the operator is `avg`"),
        ("t|<a> = count x|<a>|<b> group by a", "group", "each set of the output's slots"),
        ("t|<a> = count distinct x|<a>|<b>", "distinct", "count the keys of another join"),
        ("t|<a> = distinct x|<a>", "distinct", "count the keys of another join"),
        ("t|<a> = check not x|<a> copy y|<a>", "not", "`unless` leaves out the rows"),
        ("t|<a> = check x|<a> not y|<a>", "not", "`unless` leaves out the rows"),
        ("t|<a> = copy x|<a> with not b = 1", "not", "`unless` leaves out the rows"),
        ("t|<a> = sum x|<a> as b having b > 3", "having", "compared by the reader"),
        ("t|<a> = copy x|<a> having b > 3", "having", "compared by the reader"),
        ("t|<a> = copy x|<a> as b where b > 3", "where", "`copy article|<id> with votes > 10`"),
        ("t|<a> = copy x|<a> with b in (1, 2)", "in", "compare with one value"),
        ("t|<a> = select x|<a>", "select", "`output = copy source`"),
    ],
)
def test_words_of_sql_have_hints_of_their_own(text: str, word: str, hint: str) -> None:
    with pytest.raises(JoinError) as caught:
        parse(text)
    assert caught.value.reason == f"the language has no {word!r}"
    assert hint in caught.value.hint
    span = caught.value.span
    assert span is not None
    assert text[span.start : span.end] == word


def test_words_of_sql_may_be_names() -> None:
    text = "limit|<x> = copy not|<x> with limit = 3, not = 4, distinct exists as {in, like}"
    assert [str(spec) for spec in parse(text)] == [text]


def test_a_text_may_have_to_declare_some_joins_or_just_one() -> None:
    one, two = "t|<a> = copy x|<a>", "t|<a> = copy x|<a>; u|<a> = copy y|<a>"
    assert (parse_some(two), parse_one(one)) == (parse(two), parse(one)[0])
    for text, asked, reason in ((";", parse_some, "no join"), ("", parse_one, "no join"), (two, parse_one, "several")):
        with pytest.raises(JoinError) as caught:
            asked(text)
        assert reason in caught.value.reason
    assert caught.value.span is not None
    assert two[caught.value.span.start :].startswith("u|<a>")
