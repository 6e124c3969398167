"""Reads of whole timelines find their plan in a short way, which agrees with the general one."""

import hypothesis.strategies as st
from hypothesis import example, given
from pequod_grammar import parse

from pequod.engine import Engine
from pequod.language.ranges import prefix_end

JOINS = [
    "t|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user:1>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user>|x|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user>|<user>|<time:2>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>",
    "t|<user>|<poster>|<time:2> = check s|<user>|<poster> copy p|<poster>|<time>",
]
#: Pieces of keys, and bytes at the end of the alphabet.
PIECES = st.sampled_from([b"a", b"|", b"x", b"\xff", b"}", b"11", b"", b"\x00"])


@given(st.sampled_from(JOINS), st.lists(PIECES, max_size=7), st.lists(PIECES, max_size=3))
@example(JOINS[0], [b"a", b"|", b"\xff", b"\xff"], [])
@example(JOINS[1], [b"a", b"|", b"11"], [])
@example(JOINS[3], [b"a", b"|", b"a", b"|", b"11"], [])
def test_a_short_way_to_a_plan_agrees_with_the_general_one(join_text: str, key: list[bytes], more: list[bytes]) -> None:
    engine = Engine()
    engine.add_joins(parse(join_text))
    engine.scan(b"t|", b"t}")
    (join,) = engine._catalog
    first = b"t|" + b"".join(key)
    prefix = join.level_one_prefix(first)
    if prefix is None:
        return
    for last in (prefix_end(prefix), first + b"".join(more) + b"\0"):
        opened = None if last is None or first >= last else join.open_plan(prefix, first, last)
        if opened is not None:
            assert last is not None
            plan, environment, known = join.plan_for(first, last)
            assert (*opened, prefix) == (plan, environment, known)


def test_a_check_of_a_timeline_takes_the_short_way() -> None:
    engine = Engine()
    engine.add_joins(parse(JOINS[0]))
    (join,) = engine._catalog
    assert join.open_plan(b"t|ann|", b"t|ann|10", b"t|ann}") is not None
    assert join.open_plan(b"t|ann|", b"t|ann|10", b"t|ann|20") is None
    assert join.open_plan(b"t|ann|", b"t|ann|\xff\xff", b"t|ann}") is None
