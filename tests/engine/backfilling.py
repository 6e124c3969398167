"""What somebody outside the engine would compute for a backfill: pieces, from base rows of one moment, naively."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from random import Random

from pequod.engine import Backfill, Operator, Piece, Range
from pequod.engine.testing import tuples_of
from pequod.language.patterns import compile_matcher
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
            pieces += [_piece(backfill, len(prefix), part, contributions) for part in _split(random, first, last)]
    random.shuffle(pieces)
    return pieces


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
