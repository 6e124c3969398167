"""Replacements in walks: a join takes the place of another, whenever; the model's does at the same step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from pequod.engine import JoinError, JoinSpec, LimitExceededError
from tests.engine.draw import draw_join, draw_keep
from tests.engine.draw_records import draw_record_join
from tests.engine.pair import Pair

_STEPS_MAX = 10_000


def draw_replacing(random: Random, specs: list[JoinSpec], *, snapshots: bool) -> tuple[int, JoinSpec]:
    """Draw the number of a join, and one that can often take its place: of its table, with other values or groups."""
    number = random.randrange(max(1, len(specs)))
    draw = partial(draw_record_join if any(spec.has_records for spec in specs) else draw_join, random)
    drawn = [draw(snapshots=snapshots) for _ in range(6)]
    if not specs:
        return number, drawn[0]
    old = specs[number]
    fit = [spec for spec in drawn if spec.output.table == old.output.table]
    # Often the same keys with other values, fewer of them, or under a maintenance of another kind.
    changed = [replace(old, maintenance=drawn[0].maintenance), draw_keep(random, replace(old, keep=None))]
    for spec in drawn:
        *checks, value = old.sources
        if spec.value_source is spec.sources[-1] and value is old.value_source:
            changed.append(replace(old, sources=(*checks, replace(value, operator=spec.value_source.operator))))
    return number, random.choice(fit if fit and random.random() < 0.5 else changed)


def take_replace(pair: Pair, number: int, spec: JoinSpec) -> None:
    """Begin a replacement, unless the join is refused: then nothing has changed."""
    if not pair.specs or pair.engine.replacement is not None:
        return
    name = pair.engine.joins()[number % len(pair.specs)].name
    before = pair.engine.joins(), pair.engine.revision
    try:
        pair.engine.begin_replacement(name, spec)
    except JoinError:
        pair.same((pair.engine.joins(), pair.engine.revision), before)


def take_replace_some(pair: Pair, step_count: int) -> None:
    """Go on with replacing joins by some steps; 0: to the end."""
    replacement = pair.engine.replacement
    old = None if replacement is None else replacement.old.spec
    for _ in range(step_count or _STEPS_MAX):
        try:
            more, revisions = pair._loading(lambda: _step(pair))
        except LimitExceededError:
            # What it lacks cannot be loaded.
            if pair.engine.replacement is not None:
                pair.engine.end_replacement(pair.engine.replacement, "there is no memory")
            return
        except JoinError:
            pair.same(any(pair.model.base), True)
            return
        pair.engine._check()
        is_switch = replacement is not None and replacement.is_in_place and old is not None
        pair.same(revisions, int(is_switch))
        if is_switch:
            assert replacement is not None
            assert old is not None
            pair.model.replace(old, replacement.new.spec)
            pair.changed()
            old = None
        if not more:
            return
    assert step_count, "it comes to an end"


def _step(pair: Pair) -> tuple[bool, int]:
    """Take one step; return whether there is more, and by how many revisions the engine went on."""
    before = pair.engine.revision
    return pair.engine.replace_some(now=pair.now), pair.engine.revision - before


def take_end_replacement(pair: Pair) -> None:
    """Cancel what is under way."""
    if (replacement := pair.engine.replacement) is not None:
        pair.engine.end_replacement(replacement, "cancelled")
        pair.same(replacement.is_in_place, False)
