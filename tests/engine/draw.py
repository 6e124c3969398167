"""Draws joins, keys and ranges from tiny alphabets, so that collisions and edge cases are common.

Everything takes a `random.Random`, so that the random walk and Hypothesis (`st.randoms`) share it.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random

from pequod.engine import JoinSpec, Maintenance, Operator, Pattern, Pull, Push, Slot, Snapshot, Source, prefix_end
from pequod.language.numbers import encode_f64, encode_i64
from pequod.language.spec import SOURCES_MAX, Keep, NumberForm

#: Bytes below and above `|`, and values that are prefixes of others.
WORDS = [b"a", b"b", b"ab", b"a!", b"~", b"b~"]
BYTES = [b"a", b"b", b"|", b"\x00", b"\xff"]
VALUES = [b"", b"1", b"2", b"-3", b".5", b"1.50", b"007", b"7", b"x", b"1e3"]
BASE_TABLES = [b"s", b"p", b"q"]
OUTPUT_TABLES = [b"t", b"u", b"v", b"w"]
TABLES = BASE_TABLES + OUTPUT_TABLES
NAMES = ["x", "y", "z"]
#: The share of joins that keep all rows.
KEEP_NONE = 0.75
VALUE_OPERATORS = [Operator.COPY] * 3 + [Operator.COUNT, Operator.SUM, Operator.MIN, Operator.MAX]


def draw_join(random: Random, *, snapshots: bool = False) -> JoinSpec:
    """Draw a well-formed join; it may still be part of a cycle with others."""
    if random.random() < 0.25:
        if random.random() < 0.2:
            return draw_decided_timeline(random)
        timeline = draw_timeline(random)
        return draw_keep(random, draw_absences(random, timeline) if random.random() < 0.3 else timeline)
    widths = {name: random.choice([None, None, None, 1, 2]) for name in NAMES}
    sources = []
    count = random.choice([1, 1, 2, 2, 2, 3])
    value_at = random.choice([count - 1, count - 1, random.randrange(count)])
    for number in range(count):
        operator = random.choice(VALUE_OPERATORS) if number == value_at else Operator.CHECK
        if operator is Operator.SUM and widths["z"] is None:
            # The same draws as before there were means: cases that are named by their seeds stay what they are.
            operator = Operator.AVG
        table = random.choice(BASE_TABLES * 2 + OUTPUT_TABLES)
        names = [random.choice(NAMES) for _ in range(random.choice([1, 2, 2, 2, 3]))]
        sources.append(Source(operator, draw_pattern(random, table, names, widths)))
    bound = list(dict.fromkeys(slot.name for source in sources for slot in source.pattern.slots()))
    random.shuffle(bound)
    shown = bound[: random.choice([len(bound), len(bound), random.randint(0, len(bound))])]
    if random.random() < 0.1 and shown:
        shown.append(random.choice(shown))
    output = draw_pattern(random, random.choice(OUTPUT_TABLES), shown, widths)
    maintenance: Maintenance = random.choice([Push()] * 5 + [Pull()])
    if snapshots and random.random() < 0.3:
        maintenance = Snapshot(Decimal(random.choice(["1", "2.5"])))
    return draw_keep(random, draw_absences(random, JoinSpec(output, tuple(sources), maintenance)))


def draw_keep(random: Random, spec: JoinSpec) -> JoinSpec:
    """Return a join that keeps some rows of each group, mostly the same that keeps all."""
    names = list(dict.fromkeys(slot.name for slot in spec.output.slots()))
    if not names or random.random() < KEEP_NONE:
        return spec
    slots = names[: random.choice([0, 1, 1, 1, random.randrange(len(names))])][: len(names) - 1]
    return replace(spec, keep=Keep(random.choice([1, 1, 2, 2, 3, 5]), random.random() < 0.7, tuple(slots)))


def draw_timeline(random: Random) -> JoinSpec:
    """Draw a join of the timeline's kind: a check of one open slot, and a copy of slots with widths."""
    x, y, z = Slot("x"), Slot("y", random.choice([1, 2])), Slot("z", random.choice([None, 1, 2, 2]))
    check = Source(Operator.CHECK, Pattern((b"s|", x, b"|", z)))
    copy = Source(Operator.COPY, Pattern((b"p|", z, b"|", y)))
    return JoinSpec(Pattern((b"t|", x, b"|", y, b"|", z)), (check, copy))


def draw_absences(random: Random, spec: JoinSpec) -> JoinSpec:
    """Return a join with some sources that must not be there, mostly none."""
    sources = list(spec.sources)
    for number in range(random.choice([0, 0, 0, 1, 1, 2])):
        at = random.randint(1, len(sources))
        slots = {slot.name: slot.width for source in sources[:at] for slot in source.bound()}
        free = {f"free{number}": random.choice([None, None, 1, 2])}
        names = random.choices([*slots, *free], k=random.choice([1, 2, 2, 3]))
        table = random.choice(BASE_TABLES * 2 + OUTPUT_TABLES)
        sources.insert(at, Source(Operator.UNLESS, draw_pattern(random, table, names, {**slots, **free})))
    return replace(spec, sources=tuple(sources[:SOURCES_MAX]))


def draw_kept_timeline(random: Random) -> JoinSpec:
    """Draw a timeline with the last rows of each user, whose fan-outs the native core does."""
    keep = Keep(random.choice([1, 2, 3, 5]), random.random() < 0.8, random.choice([("x",), ("x",), ()]))
    return replace(draw_timeline(random), keep=keep)


def draw_decided_timeline(random: Random) -> JoinSpec:
    """Draw a timeline with the last rows of each user, where sources behind the posts say which rows are there."""
    spec = draw_kept_timeline(random)
    slots = {slot.name: slot.width for source in spec.sources for slot in source.pattern.slots()}
    sources = list(spec.sources)
    for number in range(random.choice([1, 1, 2])):
        operator = random.choice([Operator.CHECK, Operator.UNLESS])
        free = {f"free{number}": random.choice([None, 1])} if operator is Operator.UNLESS else {}
        names = ["x", *random.choices(["y", "z", *free], k=random.choice([1, 1, 2]))]
        pattern = draw_pattern(random, random.choice(BASE_TABLES * 2 + OUTPUT_TABLES), names, {**slots, **free})
        sources.append(Source(operator, pattern))
    return replace(spec, sources=tuple(sources))


def draw_pattern(random: Random, table: bytes, names: list[str], widths: dict[str, int | None]) -> Pattern:
    """Draw a pattern with some slots, in their order."""
    parts: list[bytes | Slot] = [table + b"|"]
    for position, name in enumerate(names):
        parts.append(Slot(name, widths[name]))
        if position + 1 < len(names):
            is_fixed = widths[name] is not None
            separator = random.choice([b"", b"|"]) if is_fixed else random.choice([b"|", b"|", b"|", b"|a|"])
            if separator:
                parts.append(separator)
    if not names:
        parts[0] = table + b"|all"
    elif random.random() < 0.15:
        parts.append(random.choice([b"|1", b"|2"]))
    return Pattern(tuple(parts))


def draw_key(random: Random, specs: list[JoinSpec], *, tables: list[bytes] = BASE_TABLES) -> bytes:
    """Draw a key: mostly one that a source reads, sometimes anything."""
    patterns = [source.pattern for spec in specs for source in spec.sources]
    patterns = [pattern for pattern in patterns if pattern.literal_prefix.split(b"|")[0] in tables]
    if patterns and random.random() < 0.85:
        pattern = random.choice(patterns)
        drawn: dict[str, bytes] = {}
        for slot in pattern.slots():
            drawn.setdefault(slot.name, draw_value_of(random, slot))
        return b"".join(part if isinstance(part, bytes) else drawn[part.name] for part in pattern.parts)
    pieces = [random.choice(tables), *(random.choice([*WORDS, b""]) for _ in range(random.randrange(4)))]
    return b"|".join(pieces)


def table_of(key: bytes) -> bytes:
    """Return the name of a key's table; that of a key without a delimiter is the key."""
    return key.partition(b"|")[0]


def draw_value_of(random: Random, slot: Slot) -> bytes:
    """Draw a value of a slot, which may have a form."""
    if slot.form is None:
        return draw_slot(random, slot.width)
    number = random.choice([-1, 0, 1, 2])
    return (encode_i64(number) if slot.form is NumberForm.I64 else encode_f64(number)).encode()


def draw_slot(random: Random, width: int | None) -> bytes:
    """Draw a value of a slot."""
    if width is None:
        return random.choice(WORDS[: random.choice([2, 3, 6])])
    # A slot with a width may hold the delimiter, and often does here.
    return b"".join(random.choice(random.choice([BYTES[:2], BYTES[:3], BYTES])) for _ in range(width))


def draw_range(random: Random, specs: list[JoinSpec]) -> tuple[bytes, bytes | None]:
    """Draw a range: about one timeline, or with bounds anywhere; sometimes everything, sometimes reversed."""
    if random.random() < 0.04:
        return b"", None
    first = draw_bound(random, specs)
    if random.random() < 0.5:
        stem = first[: first.rfind(b"|") + 1]
        if stem:
            return random.choice([stem, first]), prefix_end(stem)
    last = draw_bound(random, specs)
    if random.random() < 0.1:
        return first, last
    return min(first, last), max(first, last)


def draw_bound(random: Random, specs: list[JoinSpec]) -> bytes:
    """Draw a bound: a key, a piece of one, or the edge of a prefix."""
    outputs = [spec.output for spec in specs]
    if outputs and random.random() < 0.8:
        pattern = random.choice(outputs)
        values = {slot.name: draw_value_of(random, slot) for slot in pattern.slots()}
        key = b"".join(part if isinstance(part, bytes) else values[part.name] for part in pattern.parts)
    else:
        key = draw_key(random, specs, tables=TABLES)
    cut = random.randrange(1, len(key) + 1)
    delimiter = key.find(b"|", random.randrange(len(key)))
    stem = key[: delimiter + 1] if delimiter >= 0 else key
    return random.choice([key, key + b"\0", key[:cut], stem, prefix_end(stem) or stem, key + b"|", key + b"~"])
