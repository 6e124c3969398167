"""Draws joins whose values have fields of several sources, some of which may be missing; see `draw_records`."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from random import Random

from pequod.engine import JoinSpec, Maintenance, Operator, Pattern, Pull, Push, Slot, Snapshot, Source
from pequod.language.missing import search_of
from pequod.language.spec import WHOLE, Bind, Comparator, Compare, Exists, Path, SomeFields
from pequod.language.views import plain_join
from tests.engine.draw import BASE_TABLES, OUTPUT_TABLES, draw_absences, draw_keep, draw_pattern
from tests.engine.draw_records import ARRAY, PATHS, draw_record_join, is_sound


def draw_composed_join(random: Random, *, snapshots: bool = False) -> JoinSpec:
    """Draw a join whose value has fields of at least two sources; mostly one that has rows."""
    if random.random() < 0.7:
        return _draw_simple(random, snapshots=snapshots)
    while True:
        spec = draw_record_join(random, snapshots=snapshots)
        if len(spec.sources) == 1 and random.random() < 0.9:
            continue
        sources = [_giving(random, source, number) for number, source in enumerate(spec.sources)]
        if random.random() < 0.4:
            sources.append(_draw_optional(random, sources))
        if random.random() < 0.3:
            random.shuffle(sources)
        spec = replace(spec, sources=tuple(sources), keep=None)
        spec = replace(spec, output=_showing_all(random, spec))
        spec = draw_keep(random, draw_absences(random, spec) if random.random() < 0.2 else spec)
        if spec.is_composed and is_sound(spec):
            return spec


def _draw_simple(random: Random, *, snapshots: bool) -> JoinSpec:
    """Draw a copy of all slots, and checks of some of them, with few conditions."""
    while True:
        names = ["x", "y", "z"][: random.choice([1, 2, 2, 3])]
        widths = {name: random.choice([None, None, 1]) for name in names}
        operators = [Operator.COPY, *random.choices([Operator.CHECK, Operator.OPTIONAL], k=random.choice([1, 1, 2]))]
        sources = []
        for number, operator in enumerate(operators):
            chosen = names if operator is Operator.COPY else random.sample(names, random.randint(1, len(names)))
            table = random.choice([*BASE_TABLES * 2, *OUTPUT_TABLES])
            pattern = draw_pattern(random, table, random.sample(chosen, len(chosen)), widths)
            source = Source(operator, pattern)
            if random.random() < 0.3:
                path = random.choice(PATHS)
                condition = Exists(path) if random.random() < 0.5 else Compare(path, Comparator.NOT_EQUAL, '"a"')
                source = replace(source, conditions=(condition,))
            sources.append(replace(source, given=_draw_fields(random, source, number)))
        if random.random() < 0.5:
            random.shuffle(sources)
        maintenance: Maintenance = random.choice([Push()] * 6 + [Pull()])
        if snapshots and random.random() < 0.3:
            maintenance = Snapshot(Decimal(random.choice(["1", "2.5"])))
        output = Pattern((random.choice(OUTPUT_TABLES) + b"|", Slot("x")))
        spec = JoinSpec(output, tuple(sources), maintenance)
        spec = draw_keep(random, replace(spec, output=_showing_all(random, spec)))
        if is_sound(spec):
            return spec


def draw_searching_composed_join(random: Random, *, snapshots: bool = False) -> JoinSpec:
    """Draw one with a source that a database can be asked for by fields."""
    while True:
        spec = draw_composed_join(random, snapshots=snapshots)
        searches = [search_of(view) for view in plain_join(spec)[1] if view is not None and view.is_indexed]
        if any(next(search.plain.slots()).name in dict(search.fields) for search in searches):
            return spec


def _giving(random: Random, source: Source, number: int) -> Source:
    """Return a source that gives fields, always of what is copied, and mostly of what is checked."""
    if source.operator is Operator.UNLESS:
        return source
    operator = Operator.COPY if source.operator.gives_value else Operator.CHECK
    given = None if operator is Operator.CHECK and random.random() < 0.3 else _draw_fields(random, source, number)
    if operator is Operator.CHECK and given is not None and random.random() < 0.4:
        operator = Operator.OPTIONAL
        source = replace(source, conditions=tuple(one for one in source.conditions if not isinstance(one, Bind)))
    return replace(source, operator=operator, given=given)


def _draw_fields(random: Random, source: Source, number: int) -> SomeFields:
    paths = [WHOLE] if source.is_of_whole_values else [*PATHS, ARRAY]
    names = ["a|", "b", "c"][: random.choice([1, 1, 2, 3])]
    return SomeFields(tuple((f"{name}{number}", random.choice(paths)) for name in names))


def _draw_optional(random: Random, sources: list[Source]) -> Source:
    """Draw a `check?` of slots that the sources have."""
    slots = list({slot.name: slot for source in sources for slot in source.bound()}.values())
    parts: list[bytes | Slot] = [random.choice([b"s|", b"p|", b"q|", b"v|"])]
    for slot in random.choices(slots, k=random.choice([1, 1, 2])):
        parts += [slot, b"|"]
    pattern = Pattern(tuple(parts[:-1] if random.random() < 0.8 else [*parts[:-1], b"|1"]))
    return Source(Operator.OPTIONAL, pattern, None, (), SomeFields((("o", Path(("a",))), ("n", random.choice(PATHS)))))


def _showing_all(random: Random, spec: JoinSpec) -> Pattern:
    """Return an output with all slots of a join."""
    slots = list({slot.name: slot for source in spec.sources for slot in source.bound()}.values())
    random.shuffle(slots)
    parts: list[bytes | Slot] = [spec.output.table + b"|"]
    for slot in slots:
        parts += [slot, b"|"]
    return Pattern(tuple(parts[:-1])) if slots else Pattern((parts[0] + b"all",))  # type: ignore[operator]
