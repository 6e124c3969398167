"""Draws joins over the fields of records, and records, from tiny alphabets; see `draw`."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import orjson

from pequod.engine import JoinSpec, Operator, Pattern, Slot, Source
from pequod.language.errors import JoinError
from pequod.language.missing import search_of
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
from pequod.language.views import plain_join
from tests.engine.draw import VALUES, draw_join

TEXTS = ["a", "b", "ab", "a!", "~", "1", "01", "", "a|b", "é"]
NUMBERS = [0, 1, 2, 10, -1, 1.0, 1.5, -0.0, 1e20, 1e-7, (1 << 63) - 1, 1 << 63]
#: Numbers as they are written by others than our printer, some of which no double holds; and half of a pair.
SPELLED = [
    *(b"-0 -0.0e400 1E2 100 1.00e+2 0.10e3 1.50 10e-1 9007199254740993 9007199254740993.0 1e999999999").split(),
    *(b"12345678901234567.89 12345678901234567.890 123456789012345678901234567890 1e400 -1e400 1e-400").split(),
    *(b"123456789012345e5 12345678901234500000 1e9999999999 18446744073709551616 -9223372036854775809").split(),
    b'"\\ud800"',
]
#: Paths to fields; `e` is usually an array.
PATHS = [Path(("a",)), Path(("a",)), Path(("b",)), Path(("c", "d"))]
ARRAY = Path(("e",))
LITERALS = ["1", "0", "1.5", "100", "12345678901234567.89", '"a"', '"b"', '"é"', "true", "false", "null"]
#: Those that are neither less nor greater than anything.
UNORDERED = LITERALS[-3:]


def draw_scalar(random: Random) -> object:
    """Draw a value of a field; mostly one that has a form in slots."""
    kind = random.random()
    if kind < 0.55:
        return random.choice(TEXTS[: random.choice([2, 3, 10])])
    if kind < 0.85:
        return random.choice(NUMBERS[: random.choice([3, 12])])
    if kind < 0.9:
        return orjson.Fragment(random.choice(SPELLED))
    return random.choice([True, False, None, {}, {"d": 1}, [], ["a"]])


def draw_record(random: Random) -> bytes:
    """Draw a value: mostly a record, sometimes another of those that joins over keys meet."""
    if random.random() < 0.07:
        return random.choice([*VALUES, b"[1]", b'"a"', b'{"a":', b"null", b"{}"])
    record: dict[str, object] = {}
    for name in ("a", "b"):
        if random.random() < 0.85:
            record[name] = draw_scalar(random)
    if random.random() < 0.5:
        record["c"] = {"d": draw_scalar(random)} if random.random() < 0.8 else draw_scalar(random)
    if random.random() < 0.7:
        elements: object = [draw_scalar(random) for _ in range(random.choice([0, 1, 2, 2, 3]))]
        record["e"] = elements if random.random() < 0.9 else draw_scalar(random)
    return orjson.dumps(record)


def draw_value(random: Random, specs: list[JoinSpec]) -> bytes:
    """Draw a value for the tables of joins."""
    if random.random() < 0.4 and any(source.is_of_whole_values for spec in specs for source in spec.sources):
        return orjson.dumps(draw_scalar(random))
    if any(spec.has_records for spec in specs) and random.random() < 0.85:
        return draw_record(random)
    return random.choice(VALUES)


def draw_record_join(random: Random, *, snapshots: bool = False) -> JoinSpec:
    """Draw a join of which at least one source looks at records."""
    while True:
        spec = draw_join(random, snapshots=snapshots)
        slots = {slot.name: slot for source in spec.sources for slot in source.pattern.slots()}
        for name in "xyz":
            if random.random() < 0.15:
                slots[name] = Slot(name, FORM_WIDTH, random.choice(list(NumberForm)))
            slots.setdefault(name, Slot(name))
        sources = [_draw_source(random, source, slots) for source in spec.sources]
        spec = JoinSpec(_with(spec.output, slots), tuple(sources), spec.maintenance, keep=spec.keep)
        bound = [slot for source in spec.sources for slot in source.bound() if slot not in spec.output.slots()]
        if bound and random.random() < 0.6:
            # What a field binds is usually shown.
            spec = replace(spec, output=_showing(random, spec.output, random.choice(bound)))
        if spec.has_records and is_sound(spec):
            return spec


def is_sound(spec: JoinSpec) -> bool:
    """Return whether each `unless` has its slots where they may stand."""
    try:
        check_spec(spec)
    except JoinError:
        return False
    return True


def draw_searching_join(random: Random, *, snapshots: bool = False) -> JoinSpec:
    """Draw a join with a source that a database can be asked for by fields, mostly by the first plain slot."""
    while True:
        spec = draw_record_join(random, snapshots=snapshots)
        searches = [search_of(view) for view in plain_join(spec)[1] if view is not None and view.is_indexed]
        leading = [next(search.plain.slots()).name in dict(search.fields) for search in searches]
        if searches and (any(leading) or random.random() < 0.1):
            return spec


def _with(pattern: Pattern, slots: dict[str, Slot]) -> Pattern:
    return Pattern(tuple(slots.get(part.name, part) if isinstance(part, Slot) else part for part in pattern.parts))


def _showing(random: Random, output: Pattern, slot: Slot) -> Pattern:
    first, *rest = output.parts
    assert isinstance(first, bytes)
    table, _, literal = first.partition(b"|")
    if random.random() < 0.7:
        # In front, as the key of an index.
        return Pattern((table + b"|", slot, b"|" + (literal or (b"" if rest else b"z")), *rest))
    last = output.parts[-1]
    return Pattern((*output.parts[:-1], last + b"|", slot) if isinstance(last, bytes) else (*output.parts, b"|", slot))


def _draw_source(random: Random, source: Source, slots: dict[str, Slot]) -> Source:
    pattern = _with(source.pattern, slots)
    if random.random() < 0.25:
        return Source(source.operator, pattern)
    paths, given = ([WHOLE], [WHOLE]) if random.random() < 0.25 else (PATHS, [*PATHS, ARRAY])
    conditions = [_draw_condition(random, pattern, slots, paths) for _ in range(random.choice([0, 1, 1, 2]))]
    if paths is PATHS and random.random() < 0.25:
        conditions.append(Bind(ARRAY, slots[random.choice("xyz")], is_each=True))
    random.shuffle(conditions)
    return Source(source.operator, pattern, None, tuple(conditions), _draw_given(random, source.operator, given))


def _draw_condition(random: Random, pattern: Pattern, slots: dict[str, Slot], paths: list[Path]) -> Condition:
    kind = random.random()
    path = random.choice(paths)
    if kind < 0.6:
        return Bind(path, slots[random.choice("xyz")])
    comparator = random.choice(list(Comparator))
    keyed = [slot.name for slot in pattern.slots()]
    if kind < 0.7 and keyed:
        return CompareSlot(random.choice(keyed), comparator, random.choice(['"a"', '"ab"', '""', '"b"']))
    if kind < 0.8:
        return Exists(path)
    literal = random.choice(LITERALS)
    if literal in UNORDERED:
        comparator = random.choice([Comparator.EQUAL, Comparator.NOT_EQUAL])
    return Compare(path, comparator, literal)


def _draw_given(random: Random, operator: Operator, paths: list[Path]) -> Given | None:
    if not operator.gives_value or random.random() < 0.3:
        return None
    if operator is Operator.COPY and random.random() < 0.5:
        return SomeFields((("a", paths[0]), ("v", random.choice(paths))))
    return OneField(random.choice(paths))
