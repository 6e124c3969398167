"""Walks over the joins of the two applications, which draws of any joins seldom come near: keys fit them, and are few.

Values change far more often than rows come and go, so that what a frame remembers of its row is used again; and
timelines are read from moving points on, partly computed on each read.
"""

from random import Random
from typing import Any, Final

import pytest
from pequod_grammar import parse

from pequod.engine.joins import collecting
from pequod.engine.joins.contexts import Context
from pequod.engine.reads import differences, reader
from pequod.native import core
from tests.engine.earlier import draw_beginning, draw_earlier
from tests.engine.joins import CELEBRITY, NEWP
from tests.engine.random_walk import small_limits
from tests.engine.walker import Step, Walker

#: Beside comments the karma as somebody writes it, with a width and without.
KARMA: Final = """
    page|<author>|<id>|k|<cid>|<commenter> = check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;
    wide|<author:1>|<cid:1>|<commenter:2> = check told|<author:1>|<cid:1>|<commenter:2> copy karma|<commenter:2>;
"""
#: Posts that subscriptions select, of users and of everybody; some keys do not fit.
SELECTED: Final = """
    t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:4>;
    all|<time:4>|<poster:1> = check f|<poster:1> copy p|<poster:1>|<time:4>;
"""
#: The same over slots with widths, which may hold the delimiter.
WIDE: Final = "t|<user>|<time:4>|<poster:2> = check s|<user>|<poster> copy p|<poster>|<time>"
_NAMES: Final = ("a", "ab", "b")
_WIDE_NAMES: Final = ("ab", "a|", "|b", "||")
_SOURCES: Final = {
    NEWP: (("vote", 3), ("vote", 3), ("vote", 3), ("comment", 4), ("article", 2)),
    KARMA: (("karma", 1), ("karma", 1), ("karma", 1), ("comment", 4), ("told", 0)),
    WIDE: (("s", 2), ("s", 2), ("p", -1), ("p", -1)),
    CELEBRITY: (("s", 2), ("p", -1), ("cp", -1), ("cp", -1)),
    SELECTED: (("s", 2), ("s", 2), ("f", 1), ("p", -1), ("p", -1), ("p", 3), ("s", 3)),
}


def _key(random: Random, joins: str) -> bytes:
    table, slots = random.choice(_SOURCES[joins])
    if joins is WIDE:
        poster = random.choice(_WIDE_NAMES)
        return (
            f"s|{random.choice(_NAMES)}|{poster}".encode()
            if slots == 2
            else f"p|{poster}|000{random.randrange(6)}".encode()
        )
    if slots == -1:
        return f"{table}|{random.choice(_NAMES)}|000{random.randrange(6)}".encode()
    if slots == 0:
        return f"{table}|{random.choice('ab')}|{random.choice('12')}|ab".encode()
    names = [random.choice(_NAMES) for _ in range(slots)]
    if joins is KARMA and slots == 4:
        # One article, so that what is read of its page, and what is not, both have comments.
        names[:2] = "a", "a"
    return "|".join([table, *names]).encode()


def _range(random: Random, joins: str) -> tuple[bytes, bytes]:
    name = random.choice(_NAMES)
    if joins is SELECTED and random.random() < 0.5:
        return f"all|000{random.randrange(4)}".encode(), random.choice((b"all|0004", b"all}"))
    if joins in (CELEBRITY, SELECTED, WIDE):
        return f"t|{name}|000{random.randrange(6)}".encode(), f"t|{name}}}".encode()
    if joins is KARMA and random.random() < 0.3:
        return f"wide|{name[0]}|".encode(), f"wide|{name[0]}}}".encode()
    article = "page|a|a" if joins is KARMA else f"page|{name}|{random.choice(_NAMES)}"
    if random.random() < 0.8:
        # Pieces with holes between them, in which comments come and go.
        first, last = sorted(f"{article}|k|{random.choice(_NAMES)}|{random.choice(_NAMES)}" for _ in range(2))
        return first.encode(), last.encode()
    return f"{article}|".encode(), f"{article}}}".encode()


@pytest.mark.parametrize(
    "joins", [NEWP, KARMA, CELEBRITY, SELECTED, WIDE], ids=["newp", "karma", "celebrity", "selected", "wide"]
)
def test_walks_over_an_application_agree(joins: str) -> None:
    for seed in range(12):
        random = Random(seed)
        with small_limits(random):
            walker, specs = Walker(), parse(joins)
            adds = [Step("add", (spec,)) for spec in specs]
            for step in [*draw_earlier(random, specs), *adds, *draw_beginning(random, specs)]:
                walker.take(step)
            for _ in range(80):
                chance = random.random()
                if chance < 0.45:
                    walker.take(Step("scan", (*_range(random, joins), random.choice((None, None, 1, 3)), False)))
                elif chance < 0.55:
                    walker.take(Step("remove", (_key(random, joins),)))
                elif chance < 0.6:
                    walker.take(Step("scan", (*_range(random, joins), None, True)))
                else:
                    walker.take(Step("put", (_key(random, joins), random.choice((b"1", b"2", b"3")))))
            walker.take(Step("look_over"))


def test_walks_meet_logs_of_selections(monkeypatch: pytest.MonkeyPatch) -> None:
    natively, by_loops = list[bool](), list[Context]()
    apply_natively, apply_by_loops = collecting.apply_log, differences.differences

    def note(context: Context, read_number: int) -> bool:
        natively.append(apply_natively(context, read_number))
        return natively[-1]

    def note_loops(context: Context, *arguments: Any) -> object:
        by_loops.append(context)
        return apply_by_loops(context, *arguments)

    monkeypatch.setattr(reader, "apply_log", note)
    monkeypatch.setattr(reader, "differences", note_loops)
    test_walks_over_an_application_agree(SELECTED)
    assert any(natively) == (core is not None)
    assert not all(natively)
    assert any(context.plan.log_kernel is None for context in by_loops), "of contexts that fix a moment"
