"""The range that conditions on slots leave holds every key that meets them."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from pequod_grammar.patterns import parse_pattern
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark_pequod.filters import narrow

from pequod.engine.errors import Span

TEXT = st.text(alphabet="ab|}", max_size=3)
KINDS: dict[type[Filter], Callable[[str, str], bool]] = {
    EqualTo: lambda value, bound: value == bound,
    GreaterThan: lambda value, bound: value > bound,
    GreaterThanOrEqual: lambda value, bound: value >= bound,
    LessThan: lambda value, bound: value < bound,
    LessThanOrEqual: lambda value, bound: value <= bound,
    StringStartsWith: lambda value, bound: value.startswith(bound),
}
PATTERNS = {
    "p|<a>|<b>": r"p\|([^|]+)\|([^|]+)",
    "p|<a:2>|<b>": r"p\|(..)\|([^|]+)",
    "p|<a:1><b:2>|c": r"p\|(.)(..)\|c",
    "p|<a>|<a>|<b:1>": r"p\|([^|]+)\|\1\|(.)",
}


@given(
    st.sampled_from(sorted(PATTERNS)),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(list(KINDS)), TEXT), max_size=3),
    st.lists(st.text(alphabet="ab|}c", max_size=8).map(lambda tail: "p|" + tail), max_size=30),
)
def test_every_key_that_meets_the_conditions_is_in_the_range(
    text: str, conditions: list[tuple[str, type[Filter], str]], keys: list[str]
) -> None:
    filters: list[Filter] = [kind((name,), bound) for name, kind, bound in conditions]  # type: ignore[call-arg]
    left, (first, last) = narrow(filters, parse_pattern(text, Span(0, len(text), 1, 1)), b"", None)
    assert left == filters, "Spark looks at all of them again"
    for key in keys:
        match = re.fullmatch(PATTERNS[text], key)
        if match is None:
            continue
        slots = {"a": match[1], "b": match[2]}
        if all(KINDS[kind](slots[name], bound) for name, kind, bound in conditions):
            assert first <= key.encode()
            assert last is None or key.encode() < last
