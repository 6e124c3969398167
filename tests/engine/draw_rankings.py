"""Draws joins that put values which other joins compute into keys, so that an index over computed rows is read."""

from __future__ import annotations

from decimal import Decimal
from random import Random

from pequod.engine import JoinSpec, Maintenance, Operator, Pattern, Pull, Push, Slot, Snapshot, Source
from pequod.language.spec import FORM_WIDTH, WHOLE, Bind, Comparator, Compare, Condition, NumberForm
from tests.engine.draw import VALUE_OPERATORS


def draw_ranking(random: Random, *, snapshots: bool = False) -> list[JoinSpec]:
    """Draw one or two joins that compute values, and one or two that are ordered by these values.

    u|<x> = count p|<x>|<y>      v|<n:i64>|<x> = copy u|<x> with . = <n>      w|<z>|<x> = check s|<z>|<n> copy u|<x> ..
    """
    x, y, z = Slot("x", random.choice([None, None, 1])), Slot("y"), Slot("z")
    kind = random.choice([NumberForm.I64, NumberForm.I64, NumberForm.F64, None])
    n = Slot("n") if kind is None else Slot("n", FORM_WIDTH, kind)
    shown: tuple[bytes | Slot, ...] = (b"u|", x, b"|", y) if random.random() < 0.3 else (b"u|", x)

    def maintained() -> Maintenance:
        if snapshots and random.random() < 0.3:
            return Snapshot(Decimal(random.choice(["1", "2.5"])))
        return random.choice([Push()] * 7 + [Pull()])

    specs = [
        JoinSpec(
            Pattern(shown if number == 0 else (b"u|", x)),
            (Source(random.choice(VALUE_OPERATORS), Pattern((table, x, b"|", y))),),
            maintained(),
        )
        for number, table in enumerate(random.sample([b"p|", b"q|"], random.choice([1, 1, 2])))
    ]
    conditions: list[Condition] = [Bind(WHOLE, n)]
    if random.random() < 0.2:
        conditions.append(Compare(WHOLE, random.choice(list(Comparator)), random.choice(["1", "2"])))
    ranked = Source(random.choice([Operator.COPY, *VALUE_OPERATORS]), Pattern(shown), None, tuple(conditions))
    rest = (x, b"|", y) if y in shown and random.random() < 0.7 else (x,)
    following = [
        JoinSpec(Pattern((b"v|", n, b"|", *rest)), (ranked,), maintained()),
        JoinSpec(
            Pattern((b"w|", z, b"|", *rest)),
            (Source(Operator.CHECK, Pattern((b"s|", z, b"|", n))), ranked),
            maintained(),
        ),
    ]
    return specs + random.sample(following, random.choice([1, 1, 2]))
