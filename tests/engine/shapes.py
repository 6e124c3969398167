"""Shapes of joins whose values have fields of several sources, and rows whose keys find each other often."""

from __future__ import annotations

from random import Random
from typing import Final

#: Rows of r (two slots) meet records of l and m (one slot).
SHAPES: Final = {
    "decided": "o|<x>|<y> = copy r|<x>|<y> as {s: a} check l|<y> as {n: b}",
    "eager": "o|<x>|<y> = check l|<y> as {n: b} copy r|<y>|<x> as {s: a}",
    "outer": "o|<x>|<y> = copy r|<x>|<y> as {s: a} check? l|<y> as {n: b, m: a}",
    "outer, eager": "o|<y>|<x> = check l|<y> as {n: b} check? m|<y> with a != 1 as {m: b} copy r|<y>|<x> as {s: a}",
    "three": "o|<x>|<y> = check? site|all as {t: b} check l|<x> as {n: b} copy r|<x>|<y> as {s: a} check? m|<y> as {c}",
    "by a field": "o|<n>|<y>|<x> = check l|<y> with b = <n> as {n: a} copy r|<y>|<x> as {s: a}",
    "by elements": "o|<n>|<x>|<y> = check l|<y> with c[] = <n> as {n: a} copy r|<y>|<x> as {s: a} check? m|<n> as {m}",
    "kept": "o|<x>|<y> = copy r|<x>|<y> as {s: a} check? l|<y> as {n: b} keep last 2 of <x>",
    "kept, eager": "o|<y>|<x> = check l|<y> as {n: b} copy r|<y>|<x> as {s: a} keep first 2",
    "pulled": "o|<x>|<y> = pull copy r|<x>|<y> as {s: a} check? l|<y> as {n: b}",
    "of computed rows": """c|<y> = count r|<x>|<y>;
        o|<x>|<y> = copy r|<x>|<y> as {s: a} check? c|<y> with . > 1 as {count: .} check l|<y> as {n: b};
        p|<n>|<x>|<y> = copy o|<x>|<y> with n = <n> as {s, count};
        q|<x>|<y> = copy r|<x>|<y> as {s: a} check? p|<x>|<x>|<y> as {n: count}""",
    "of each other": """o|<x>|<y> = copy r|<x>|<y> as {s: a} check? l|<y> as {n: b};
        full|<x>|<y> = copy r|<x>|<y> as {s: a} check? r|<y>|<x> as {back: a};
        o|<y>|<x> = check l|<y> copy r|<y>|<x> as {z: a} unless m|<x> check? m|<x> as {n: b}""",
}
_NAMES: Final = ("a", "b", "ab")
_FIELDS: Final = (b"1", b"2", b'"a|b"', b'"a"', b'"b"', b"null", b"1.50", b'"\\u0001|\\\\"', b'{"d":"|"}')


def draw_row_key(random: Random) -> bytes:
    """Draw a key of a source."""
    table = random.choice(["r", "r", "r", "l", "l", "m", "site"])
    if table == "site":
        return b"site|all"
    names = random.choices(_NAMES[: random.choice([2, 2, 3])], k=2 if table == "r" else 1)
    return "|".join([table, *names]).encode()


def draw_row_value(random: Random) -> bytes:
    """Draw a value, mostly a record with the fields that the joins look at."""
    if random.random() < 0.08:
        return random.choice([b"1", b"x", b"{}", b"[]", b'{"b":"\\ud800"}'])
    fields = [b'"%b":%b' % (name, random.choice(_FIELDS)) for name in (b"a", b"b") if random.random() < 0.9]
    elements = b",".join(random.choices(_FIELDS, k=random.randrange(3)))
    return b"{%b}" % b",".join([*fields, b'"c":[%b]' % elements])


def draw_output_range(random: Random) -> tuple[bytes, bytes]:
    """Draw a range of outputs."""
    table = random.choice(["o", "o", "o", "p", "q", "full"])
    name = random.choice(_NAMES)
    return random.choice(
        [
            (f"{table}|".encode(), f"{table}}}".encode()),
            (f"{table}|{name}|".encode(), f"{table}|{name}}}".encode()),
            (f"{table}|{name}|b".encode(), f"{table}|{name}|c".encode()),
        ]
    )
