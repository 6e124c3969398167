"""What somebody outside the engine would compute for a backfill: pieces, from base rows of one moment, naively."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from random import Random

from pequod.engine import Backfill, Operator, Piece, Range
from pequod.engine.testing import tuples_of
from pequod.language.keeping import compile_group
from pequod.language.patterns import compile_matcher
from pequod.language.spec import JoinSpec, Keep
from tests.engine.draw import draw_slot

Contribution = tuple[bytes, bytes, bytes]


def draw_pieces(random: Random, backfill: Backfill, base: Mapping[bytes, bytes]) -> list[Piece]:
    """Return pieces that hold all contributions to the backfill's range, and some that hold none, in any order."""
    spec, plan = backfill.join.spec, backfill.plan
    contributions: Counter[Contribution] = Counter()
    for slots, source_key, given in tuples_of(spec, dict(base)):
        output = b"".join(part if isinstance(part, bytes) else slots[part.name] for part in spec.output.parts)
        contributions[output, source_key, given] += 1
    match = compile_matcher(spec.output).match
    groups: dict[bytes, list[bytes]] = {}
    if spec.keep is not None:
        # In order: walks in two processes draw the same.
        for output in sorted({output for output, _, _ in contributions}):
            groups.setdefault(_group_of(spec, output), []).append(output)
        if spec.is_unique:
            # More than those that are kept may be loaded; of some groups all.
            fewer = {key for keys in groups.values() for key in _innermost(random, spec.keep, keys)}
            contributions = Counter({one: times for one, times in contributions.items() if one[0] in fewer})
    fixed: set[tuple[bytes, ...]] = set()
    for output, _, _ in contributions:
        matched = match(output)
        assert matched is not None
        fixed.add(matched.groups()[: plan.level])
    leading = list(dict.fromkeys(spec.output.slots()))[: plan.level]
    fixed |= {tuple(draw_slot(random, slot.width) for slot in leading) for _ in range(2)}
    pieces = []
    for values in sorted(fixed):
        prefix = plan.prefix(plan.environment(values))
        first, last = max(prefix, backfill.first), min(plan.end_of(prefix), backfill.last)
        if first < last:
            parts = _split(random, first, last)
            if spec.keep is not None:
                parts = _whole_groups(spec, parts)
            pieces += [_piece(backfill, len(prefix), part, contributions) for part in parts]
    random.shuffle(pieces)
    return pieces


def _group_of(spec: JoinSpec, output: bytes) -> bytes:
    """Return what all keys of an output key's group begin with."""
    assert spec.keep is not None
    matched = compile_matcher(spec.output).match(output)
    assert matched is not None
    slots = dict(zip(dict.fromkeys(slot.name for slot in spec.output.slots()), matched.groups(), strict=True))
    found = b""
    for part in spec.output.parts:
        if isinstance(part, bytes):
            found += part
        elif part.name in spec.keep.slots:
            found += slots[part.name]
        else:
            break
    return found


def _innermost(random: Random, keep: Keep, keys: list[bytes]) -> list[bytes]:
    count = keep.count + random.choice([0, 0, 1, 100])
    return sorted(keys)[-count:] if keep.is_last else sorted(keys)[:count]


def _whole_groups(spec: JoinSpec, parts: list[Range]) -> list[Range]:
    """Return the parts of a range, cut between groups: those that would cut a group are one."""
    match, whole = compile_group(spec), list[Range]()
    for part in parts:
        found = match(part.first)
        if whole and found is not None and found[0] != part.first:
            whole[-1] = Range(whole[-1].first, part.last)
        else:
            whole.append(part)
    return whole


def _split(random: Random, first: bytes, last: bytes) -> list[Range]:
    cuts = [
        first + bytes(random.choices(b"ab|~\x00", k=random.randrange(1, 3))) for _ in range(random.choice([0, 0, 1, 2]))
    ]
    bounds = [first, *sorted({cut for cut in cuts if first < cut < last}), last]
    return [Range(*pair) for pair in pairwise(bounds)]


def _piece(backfill: Backfill, length: int, part: Range, contributions: Counter[Contribution]) -> Piece:
    join = backfill.join
    operator = join.spec.sources[join.value_depth].operator
    merged: Counter[Contribution] = Counter()
    for (output, source_key, value), times in contributions.items():
        if part.first <= output < part.last:
            tail = output[length:]
            merged[
                tail, source_key if operator is Operator.COPY else b"", b"" if operator is Operator.COUNT else value
            ] += times
    rows = sorted(merged)
    return Piece(
        part.first,
        part.last,
        [tail for tail, _, _ in rows],
        [] if operator is Operator.COUNT else [value for _, _, value in rows],
        [] if join.is_unique else [merged[row] for row in rows],
        [source_key for _, source_key, _ in rows] if operator is Operator.COPY and not join.is_unique else [],
    )


def source_rows(backfill: Backfill, limit: int) -> dict[bytes, bytes]:
    """Return all rows of a backfill's sources as they were, read in steps."""
    found: dict[bytes, bytes] = {}
    for first, last in backfill.sources:
        at = first
        while (rows := backfill.source_rows(at, last, limit)).keys:
            assert rows.keys[: bisect_left(rows.keys, at)] == []
            found.update(zip(rows.keys, rows.values, strict=True))
            at = rows.keys[-1] + b"\0"
    return found
