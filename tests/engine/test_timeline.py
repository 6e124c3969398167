"""The timeline's kernel: which joins it is for, and that it can be switched off."""

from __future__ import annotations

import pytest
from pequod_grammar import parse

from pequod.engine import Engine, general_way
from pequod.engine.joins import timeline
from pequod.engine.joins.installed import InstalledJoin
from pequod.engine.testing import NaiveModel
from tests.engine.joins import engine_with, put_all, scan

#: For a read that fixes the first slot: are keys cut, is there a kernel, can it apply logs, do writes make equal tails?
KINDS = {
    "t|<u>|<t:3>|<p> = check s|<u>|<p> copy p|<p>|<t:3>": (True, True, True, True),
    "t|<u>|<p>|<t:3> = check s|<u>|<p> copy p|<p>|<t:3>": (True, True, False, True),
    "t|<u>|<t:3>|<p>|<f> = check f|<u>|<f> check s|<f>|<p> copy p|<p>|<t:3>": (True, False, False, False),
    "t|<u>|<t:3>|<p> = check f|<u> check s|<u>|<p> copy p|<p>|<t:3>": (True, True, False, True),
    "t|<u>|<t>|<p> = check s|<u>|<p> copy p|<p>|<t>": (False, False, False, True),
    "t|<u>|<t:3> = check s|<u>|<p> copy p|<p>|<t:3>": (False, False, False, False),
    "t|<u>|<t:3>|<p> = check s|<u>|<p> count p|<p>|<t:3>": (False, False, False, False),
    "t|<u>|<t:3>|<p> = copy p|<p>|<t:3> check s|<u>|<p>": (False, False, False, True),
    "t|<u>|<t:3> = copy p|<u>|<t:3>": (True, False, False, True),
}


def _kind(join: InstalledJoin) -> tuple[bool, bool, bool, bool]:
    plan = join.plan_at(1)
    kernel = plan.timeline
    return (
        plan.steps[-1].splice is not None,
        kernel is not None,
        kernel is not None and kernel.applies_logs,
        join.sites_of(plan)[join.value_depth].is_alike,
    )


@pytest.mark.parametrize("text", KINDS)
def test_which_joins_the_kernel_is_for_is_decided_when_they_are_compiled(text: str) -> None:
    engine = Engine()
    engine.add_joins(parse(text))
    (join,) = engine._catalog
    assert _kind(join) == KINDS[text]


@pytest.mark.parametrize("text", KINDS)
def test_the_kernel_can_be_switched_off(text: str) -> None:
    engine = Engine()
    engine.add_joins(parse(text))
    (join,) = engine._catalog
    with general_way():
        assert _kind(join) == (False, False, False, False)
    assert timeline.is_on


@pytest.mark.parametrize("groups_are_alike", [True, False])
def test_the_kernel_leaves_what_is_not_cut_for_it(groups_are_alike: bool) -> None:
    """A table is cut for its first reader; the second's rows then lie in groups of another length, or in none."""
    engine = Engine()
    first = "t|<u>|<t:3>|<p> = check s|<u>|<p> copy p|<p>|<t:3>"
    other = "w|<t:3>|<p> = check v|<t:3> copy p|<p>|<t:3>" if groups_are_alike else "w|<a:1>|<z> = copy p|<a:1><z>"
    engine.add_joins(parse(other))
    engine.add_joins(parse(first))
    put_all(engine, {"s|ann|bob": "1", "s|ann|liz": "1", "p|bob|100": "a", "p|bob|10": "b", "p|liz|200": "c"})
    assert engine.scan(b"t|ann|", b"t|ann}").values == [b"a", b"c"]
    put_all(engine, {"s|ann|eve": "1", "p|eve|150": "d"})
    assert engine.scan(b"t|ann|", b"t|ann}").values == [b"a", b"d", b"c"]
    engine._check()


def test_a_log_of_a_range_with_an_upper_bound_is_applied() -> None:
    """The kernel leaves such logs to the loops."""
    engine = Engine()
    engine.add_joins(parse("t|<u>|<t:3>|<p> = check s|<u>|<p> copy p|<p>|<t:3>"))
    put_all(engine, {"s|ann|bob": "1", "p|bob|100": "a", "p|liz|120": "b", "p|liz|900": "c"})
    assert engine.scan(b"t|ann|", b"t|ann|500").keys == [b"t|ann|100|bob"]
    engine.put(b"s|ann|liz", b"1")
    assert engine.scan(b"t|ann|", b"t|ann|500").keys == [b"t|ann|100|bob", b"t|ann|120|liz"]
    engine.put(b"p|liz|130", b"d")
    engine.remove(b"s|ann|bob")
    assert engine.scan(b"t|ann|", b"t|ann|500").keys == [b"t|ann|120|liz", b"t|ann|130|liz"]
    engine._check()


WIDE = "|".join(f"<s{number}>" for number in range(12))


@pytest.mark.parametrize(
    ("join", "checks", "posts"),
    [
        # Tables that are not cut where the subscriptions of a user begin.
        ("check s|x|<u>|<p> copy p|<p>|<t>", ["s|x|ann|bob", "s|x|liz|bob"], ["p|bob|100", "p|bob|200"]),
        ("check s|<u>|x|<p> copy p|<p>|<t>", ["s|ann|x|bob", "s|ann|y|liz"], ["p|bob|100", "p|liz|200"]),
        ("check s|<u:3><p> copy p|<p>|<t>", ["s|annbob", "s|lizbob"], ["p|bob|100", "p|bob|200"]),
        # Tails that end with what the read fixes.
        (
            "t|<u>|<t:3>|<p>|<u> = check s|<u>|<p> copy p|<p>|<t>",
            ["s|ann|bob", "s|liz|bob"],
            ["p|bob|100", "p|bob|200"],
        ),
        # Keys of more parts than a native route has room for.
        (
            f"check s|<u>|<p> copy p|<p>|<t>|{WIDE}",
            ["s|ann|bob"],
            [f"p|bob|{t}|{'|'.join(map(str, range(12)))}" for t in (100, 200)],
        ),
    ],
)
def test_keys_of_any_shape_are_followed(join: str, checks: list[str], posts: list[str]) -> None:
    output = f"t|<u>|<t:3>|<p>|{WIDE}" if WIDE in join else "t|<u>|<t:3>|<p>"
    engine, model = engine_with(join if " = " in join else f"{output} = {join}"), NaiveModel()
    for info in engine.joins():
        model.add(info.spec)
    for key in (posts[0], *checks, posts[1]):
        engine.put(key.encode(), b"1")
        model.put(key.encode(), b"1")
        followed = engine.scan(b"t|ann|", b"t|ann}")
        engine.invalidate(b"t|", b"t}")
        rows = engine.scan(b"t|ann|", b"t|ann}")
        assert followed == rows
        assert list(zip(*rows, strict=True)) == model.scan(b"t|ann|", b"t|ann}")
        engine._check()
    assert rows.keys
    engine.remove(checks[0].encode())
    assert scan(engine, "t|ann|") == {}
