"""What is printed parses to the same, for any join that the language can write; the documented workloads are joins."""

from decimal import Decimal

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pequod_grammar import parse

from pequod.engine import JoinSpec, Operator, Pattern, Pull, Push, Slot, Snapshot, Source
from pequod.language.rules import WIDTH_MAX, check_spec
from pequod.language.spec import SOURCES_MAX

WORKLOADS = [
    "t|<user:8>|<time:10>|<poster:8> = check s|<user>|<poster> copy p|<poster>|<time>;",
    "ct|<time:10>|<poster:8> = copy cp|<poster>|<time>;",
    "t|<user:8>|<time:10>|<poster:8> = pull copy ct|<time>|<poster> check s|<user>|<poster>;",
    "karma|<author> = count vote|<author>|<id>|<voter>;",
    "rank|<author>|<id> = count vote|<author>|<id>|<voter>;",
    "page|<author>|<id>|a = copy article|<author>|<id>;",
    "page|<author>|<id>|r = copy rank|<author>|<id>;",
    "page|<author>|<id>|c|<cid>|<commenter> = copy comment|<author>|<id>|<cid>|<commenter>;",
    "page|<author>|<id>|k|<cid>|<commenter> = check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;",
]

#: Visible, and without a meaning of its own in the language.
VISIBLE = st.characters(codec="utf-8", categories=["L", "M", "N", "P", "S"], exclude_characters="<>;=")
LITERALS = st.text(VISIBLE, min_size=1, max_size=4)
#: A word that starts with a comment's mark is a comment, so no table can be named like that.
TABLES = st.text(
    st.characters(codec="utf-8", categories=["L", "M", "N", "P", "S"], exclude_characters="<>;=|"),
    min_size=1,
    max_size=5,
).filter(lambda table: not table.startswith(("#", "//")))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,3}", fullmatch=True)
WIDTHS = st.none() | st.integers(1, WIDTH_MAX)
VALUE_OPERATORS = st.sampled_from([operator for operator in Operator if operator.gives_value])
MAINTENANCE = (
    st.just(Push())
    | st.just(Pull())
    | st.decimals("1e-9", "1e9", places=9).map(Snapshot)
    | st.sampled_from(["1E+3", "7E-12"]).map(lambda text: Snapshot(Decimal(text)))
)


def _pattern(table: str, pieces: list[str | Slot]) -> Pattern:
    """Join the pieces so that delimited slots end at a `|` and literals are merged."""
    parts: list[bytes | Slot] = [f"{table}|".encode()]
    for piece in pieces:
        last = parts[-1]
        if isinstance(last, Slot) and last.width is None and not (isinstance(piece, str) and piece.startswith("|")):
            parts.append(b"|")
            last = b"|"
        if isinstance(piece, Slot):
            parts.append(piece)
        elif isinstance(last, bytes):
            parts[-1] = last + piece.encode()
        else:
            parts.append(piece.encode())
    return Pattern(tuple(parts))


@st.composite
def join_specs(draw: st.DrawFn) -> JoinSpec:
    """Draw any well-formed join."""
    widths = draw(st.dictionaries(NAMES, WIDTHS, min_size=1, max_size=4))
    slots = st.sampled_from([Slot(name, width) for name, width in widths.items()])
    operators = [Operator.CHECK] * draw(st.integers(0, SOURCES_MAX - 1))
    operators.insert(draw(st.integers(0, len(operators))), draw(VALUE_OPERATORS))
    piece: st.SearchStrategy[str | Slot] = st.one_of(slots, LITERALS)
    pieces = st.lists(piece, max_size=4)
    sources = tuple(Source(operator, _pattern(draw(TABLES), draw(pieces))) for operator in operators)
    bound = list(dict.fromkeys(slot for source in sources for slot in source.pattern.slots()))
    piece = st.one_of(st.sampled_from(bound), LITERALS) if bound else LITERALS
    if len(sources) < SOURCES_MAX and draw(st.booleans()):
        sources += (Source(Operator.UNLESS, _pattern(draw(TABLES), draw(st.lists(piece, max_size=4)))),)
    return JoinSpec(_pattern(draw(TABLES), draw(st.lists(piece, max_size=4))), sources, draw(MAINTENANCE))


@given(join_specs())
def test_any_join_survives_print_and_parse(spec: JoinSpec) -> None:
    check_spec(spec)
    assert parse(str(spec)) == [spec]


@given(st.lists(join_specs(), max_size=3))
def test_several_joins_survive_together(specs: list[JoinSpec]) -> None:
    assert parse(" ;\n".join(map(str, specs))) == specs


@pytest.mark.parametrize("text", WORKLOADS)
def test_the_workloads_joins_are_joins(text: str) -> None:
    (spec,) = parse(text)
    assert parse(str(spec)) == [spec]


def test_a_workload_is_one_text_too() -> None:
    assert parse("\n".join(WORKLOADS)) == [spec for text in WORKLOADS for spec in parse(text)]


def test_a_width_given_once_holds_in_the_whole_join() -> None:
    (spec,) = parse(WORKLOADS[0])
    assert str(spec) == "t|<user:8>|<time:10>|<poster:8> = check s|<user:8>|<poster:8> copy p|<poster:8>|<time:10>"
