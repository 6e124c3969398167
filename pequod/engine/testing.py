"""A naive model of the engine: obviously right, and slow. For tests, ours and yours.

It keeps only base rows and the joins, and evaluates every join from scratch for each read: all matching tuples of
source keys, each with one contribution to an output key.

>>> from pequod.engine import JoinSpec, Operator, Pattern, Slot, Source
>>> votes = Source(Operator.COUNT, Pattern((b"vote|", Slot("author"), b"|", Slot("voter"))))
>>> model = NaiveModel()
>>> model.add(JoinSpec(Pattern((b"karma|", Slot("author"))), (votes,)))
>>> model.put(b"vote|bob|1", b""); model.put(b"vote|bob|2", b"")
>>> model.scan(b"karma|", b"karma}")
[(b'karma|bob', b'2')]
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal, Inexact, localcontext
from decimal import Context as DecimalContext
from fractions import Fraction
from functools import lru_cache

from pequod.answers.rows import Rows
from pequod.answers.transacted import Outcome, Transacted
from pequod.commands.kinds import NAMES
from pequod.engine.naive_records import composed, seen, unseen
from pequod.language.conditions import Condition, IfAbsent, IfValue, Met, Unmet
from pequod.language.deadlines import KEEP
from pequod.language.spec import (
    JoinSpec,
    Keep,
    Operator,
    Pattern,
    Source,
)
from pequod.language.transactions import Transaction

Row = tuple[bytes, bytes]


class NaiveModel:
    """Returns what an engine should return for the same calls.

    It does not decide whether joins may be installed: add those that the engine accepted. Snapshot joins are
    evaluated like the others; a test of them compares with evaluations of earlier moments.
    """

    def __init__(self) -> None:
        self.base: dict[bytes, bytes] = {}
        #: The instants at which base keys expire, in milliseconds, and the present one.
        self.deadlines: dict[bytes, int] = {}
        self.now_ms = 0
        #: Installed joins, the earliest first.
        self.joins: list[JoinSpec] = []

    def add(self, spec: JoinSpec) -> None:
        """Install a join; one that is installed already keeps its place."""
        if spec not in self.joins:
            self.joins.append(spec)

    def drop(self, spec: JoinSpec) -> None:
        """Drop a join."""
        self.joins.remove(spec)

    def replace(self, old: JoinSpec, new: JoinSpec) -> None:
        """Put a join in the place of another."""
        self.joins[self.joins.index(old)] = new

    def computes(self, key: bytes) -> bool:
        """Return whether an installed join computes ``key``, so that clients cannot write it."""
        return any(_expression(spec.output).fullmatch(key) for spec in self.joins)

    def put(self, key: bytes, value: bytes) -> None:
        """Write a base row, for ever."""
        assert not self.computes(key)
        self.base[key] = value
        self.deadlines.pop(key, None)

    def tell(self, now_ms: int) -> None:
        """Take the present instant, and remove the base rows whose deadline has come."""
        self.now_ms = now_ms
        for key in [key for key, at_ms in self.deadlines.items() if at_ms <= now_ms]:
            del self.base[key], self.deadlines[key]

    def put_for(self, key: bytes, value: bytes, ttl_ms: int | None) -> None:
        """Write a base row for some time; None: for as long as it would have lived."""
        at_ms = self.deadlines.get(key) if ttl_ms is None else self.now_ms + ttl_ms
        self.put(key, value)
        if at_ms is not None:
            self.deadlines[key] = at_ms

    def expire(self, key: bytes, ttl_ms: int | None) -> bool:
        """Have a base row expire, or (None) live for ever; return whether it is there."""
        assert not self.computes(key)
        self.deadlines.pop(key, None)
        if key in self.base and ttl_ms is not None:
            self.deadlines[key] = self.now_ms + ttl_ms
        return key in self.base

    def remove(self, key: bytes) -> bool:
        """Remove a base row; return whether it was there."""
        assert not self.computes(key)
        self.deadlines.pop(key, None)
        return self.base.pop(key, None) is not None

    def write_if(self, key: bytes, value: bytes | None, condition: Condition) -> Met | Unmet:
        """Put a base row, or (None) remove it, if its present value meets a condition."""
        assert not self.computes(key)
        present = self.base.get(key)
        if isinstance(condition, IfValue):
            is_met = present == condition.value
        else:
            is_met = (present is None) == isinstance(condition, IfAbsent)
        if not is_met:
            return Unmet(present)
        self.deadlines.pop(key, None)
        if value is None:
            self.base.pop(key, None)
        else:
            self.base[key] = value
        return Met()

    def transact(self, transaction: Transaction) -> Transacted | None:
        """Run a transaction: the commands of a list, in order; None if an add is refused, and all with it."""
        assert not any(map(self.computes, transaction.decided_by()))
        held = all(_meets(self.base.get(key), operator, value) for key, operator, value in transaction.compares)
        outcomes: list[Outcome] = []
        before = dict(self.base), dict(self.deadlines)
        for kind, first, second, number in (transaction.then if held else transaction.otherwise).commands():
            match NAMES[kind]:
                case "PUT":
                    self.put(first, second)
                    outcomes.append(None)
                case "PUT_TTL":
                    self.put_for(first, second, None if number == KEEP else number)
                    outcomes.append(None)
                case "REMOVE":
                    outcomes.append(self.remove(first))
                case "ADD":
                    outcomes.append(self.add_to(first, second))
                    if outcomes[-1] is None:
                        self.base, self.deadlines = before
                        return None
                case "GET":
                    outcomes.append(self.get(first))
                case "COUNT":
                    outcomes.append(len(self.scan(first, second or None)))
                case name:
                    rows = self.scan(first, second or None, limit=number or None, reverse=name == "SCAN_DOWN")
                    outcomes.append(Rows([key for key, _ in rows], [value for _, value in rows]))
        return Transacted(held, outcomes)

    def add_to(self, key: bytes, delta: bytes) -> bytes | None:
        """Add a number to the value of a base row, and return the sum; None if it is refused."""
        assert not self.computes(key)
        before, more = _number(self.base.get(key, b"0")), _number(delta)
        if before is None or more is None:
            return None
        total = Fraction(before) + Fraction(more)
        places = next(places for places in range(200) if (total * 10**places).denominator == 1)
        digits = str(abs(total * 10**places)).zfill(places + 1)
        text = ("-" if total < 0 else "") + digits[: len(digits) - places] + ("." + digits[-places:] if places else "")
        if len(text) > 64:
            return None
        self.base[key] = text.encode()
        return self.base[key]

    def get(self, key: bytes) -> bytes | None:
        """Return the value of ``key``, None if it is absent."""
        return self.evaluate().get(key)

    def scan(self, first: bytes, last: bytes | None, *, limit: int | None = None, reverse: bool = False) -> list[Row]:
        """Return the rows of ``[first, last)``."""
        return select(self.evaluate(), first, last, limit=limit, reverse=reverse)

    def evaluate(self) -> dict[bytes, bytes]:
        """Return all rows, base and computed. If two joins compute a key, the earlier one's value counts."""
        outputs = self.evaluate_joins()
        everything = dict(self.base)
        for rows in reversed(outputs):
            everything.update(rows)
        return everything

    def evaluate_joins(self) -> list[dict[bytes, bytes]]:
        """Return the rows of each join, by evaluating all of them until nothing changes: there are no cycles."""
        outputs: list[dict[bytes, bytes]] = [{} for _ in self.joins]
        while True:
            seen = dict(self.base)
            for rows in reversed(outputs):
                seen.update(rows)
            again = [evaluate_join(spec, seen) for spec in self.joins]
            if again == outputs:
                return outputs
            outputs = again


def select(
    rows: dict[bytes, bytes], first: bytes, last: bytes | None, *, limit: int | None = None, reverse: bool = False
) -> list[Row]:
    """Return the rows of a range in order."""
    inside = [row for row in rows.items() if first <= row[0] and (last is None or row[0] < last)]
    return sorted(inside, reverse=reverse)[:limit]


def evaluate_join(spec: JoinSpec, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Evaluate one join over ``rows``."""
    contributions: dict[bytes, list[Row]] = {}
    for slots, source_key, value in tuples_of(spec, rows):
        output = b"".join(part if isinstance(part, bytes) else slots[part.name] for part in spec.output.parts)
        contributions.setdefault(output, []).append((source_key, value))
    operator = spec.value_source.operator
    combined = {key: _combine(operator, found) for key, found in contributions.items()}
    found = {key: value for key, value in combined.items() if value is not None}
    return found if spec.keep is None else _keep(spec, spec.keep, found)


def _keep(spec: JoinSpec, keep: Keep, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the rows that are among the last, or the first, of those that agree in the slots of their group."""
    expression = _expression(spec.output)
    groups: dict[tuple[bytes, ...], list[bytes]] = {}
    for key in sorted(rows, reverse=keep.is_last):
        match = expression.fullmatch(key)
        assert match is not None
        groups.setdefault(tuple(match[name] for name in keep.slots), []).append(key)
    return {key: rows[key] for keys in groups.values() for key in keys[: keep.count]}


def tuples_of(spec: JoinSpec, rows: dict[bytes, bytes]) -> Iterator[tuple[dict[str, bytes], bytes, bytes]]:
    """Yield each tuple of source keys that match consistently: slots, the value source's key, and what is given."""
    for slots, key, given in _tuples(spec, rows, 0, {}):
        yield slots, key, composed(given) if spec.is_composed else given[0]


def _tuples(
    spec: JoinSpec, rows: dict[bytes, bytes], number: int, slots: dict[str, bytes]
) -> Iterator[tuple[dict[str, bytes], bytes, list[bytes]]]:
    if number == len(spec.sources):
        yield slots, b"", []
        return
    source = spec.sources[number]
    if source.operator is Operator.UNLESS:
        if not any(_matches(source, rows, slots)):
            yield from _tuples(spec, rows, number + 1, slots)
        return
    matches = list(_matches(source, rows, slots))
    if source.operator is Operator.OPTIONAL and not matches:
        matches = [(b"", {}, unseen(source))]
    for key, found, given in matches:
        for bound, value_key, shown in _tuples(spec, rows, number + 1, {**slots, **found}):
            if source.operator.gives_value:
                yield bound, key, [given, *shown]
            else:
                yield bound, value_key, [given, *shown] if source.given is not None else shown


def _matches(
    source: Source, rows: dict[bytes, bytes], slots: dict[str, bytes]
) -> Iterator[tuple[bytes, dict[str, bytes], bytes]]:
    """Yield the keys of a source that agree with the slots so far, with the slots that each has, and what it gives."""
    expression = _expression(source.pattern)
    for key, value in rows.items():
        match = expression.fullmatch(key)
        if match is None:
            continue
        for found, given in seen(source, match.groupdict(), value):
            if all(slots.get(name, text) == text for name, text in found.items()):
                yield key, found, given


@lru_cache(maxsize=1024)
def _expression(pattern: Pattern) -> re.Pattern[bytes]:
    text = b""
    names: set[str] = set()
    for part in pattern.parts:
        if isinstance(part, bytes):
            text += re.escape(part)
        elif part.name in names:
            text += b"(?P=%b)" % part.name.encode()
        else:
            names.add(part.name)
            shape = b"[^|]+" if part.width is None else b".{%d}" % part.width
            text += b"(?P<%b>%b)" % (part.name.encode(), shape)
    return re.compile(text, re.DOTALL)


def _combine(operator: Operator, contributions: list[Row]) -> bytes | None:
    values = [value for _, value in contributions]
    numbers = [number for number in map(_number, values) if number is not None]
    match operator:
        case Operator.COPY:
            return max(contributions)[1]
        case Operator.COUNT:
            return str(len(values)).encode()
        case Operator.SUM:
            return _spell(_sum(numbers)) if numbers else None
        case Operator.AVG:
            return _spell(_mean(numbers)) if numbers else None
        case Operator.MIN:
            return min(values, key=_rank)
        case _:
            return max(values, key=_rank)


def _meets(present: bytes | None, operator: int, value: bytes) -> bool:
    """Return whether a value is absent (1), present (2), equal (3), another (4), a lower or a higher number (5, 6)."""
    if operator < 5:
        return (present is None, present is not None, present == value, present != value)[operator - 1]
    number, other = _number(present or b""), _number(value)
    if number is None or other is None:
        return False
    return number < other if operator == 5 else number > other


def _number(value: bytes) -> Decimal | None:
    if len(value) <= 64 and re.fullmatch(rb"[+-]?(\d+(\.\d*)?|\.\d+)", value):
        return Decimal(value.decode())
    return None


def _sum(numbers: list[Decimal]) -> Decimal:
    # Numbers have at most 64 digits before and after the point: nothing is rounded.
    with localcontext(DecimalContext(prec=200, traps=[Inexact])):
        return sum(numbers, Decimal(0))


def _mean(numbers: list[Decimal]) -> Decimal:
    # The one place where digits are lost: beyond the first 34.
    with localcontext(DecimalContext(prec=34, rounding=ROUND_HALF_EVEN)):
        return _sum(numbers) / len(numbers)


def _rank(value: bytes) -> tuple[int, Decimal, bytes]:
    number = _number(value)
    return (1, Decimal(0), value) if number is None else (0, number, value)


def _spell(number: Decimal) -> bytes:
    text = f"{number:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return b"0" if text == "-0" else text.encode()
