"""A cache join as a value: patterns, sources, maintenance; no behaviour beyond printing.

    t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>
    ^ output pattern              ^ sources, in plan order; exactly one of them gives the value

>>> pattern = Pattern((b"p|", Slot("poster"), b"|", Slot("time", 10)))
>>> str(pattern)
'p|<poster>|<time:10>'
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final

from pequod.language.errors import Span

#: The byte that ends a delimited slot and a table name.
DELIMITER: Final = b"|"
#: A join with more sources than this is refused: its cost could not be predicted.
SOURCES_MAX: Final = 8


class Operator(StrEnum):
    """The contribution of a source to an output key (paper §3)."""

    CHECK = "check"
    COPY = "copy"
    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True)
class Slot:
    """A named part of a pattern: exactly ``width`` bytes, or (None) everything up to the next delimiter."""

    name: str
    width: int | None = None

    def __str__(self) -> str:
        return f"<{self.name}>" if self.width is None else f"<{self.name}:{self.width}>"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The shape of the keys of one role in a join.

    Invariants:
        1. No part is empty, and no two literals stand side by side.
    """

    #: Literals (``bytes``) and slots, in key order.
    parts: tuple[bytes | Slot, ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    def slots(self) -> Iterator[Slot]:
        """Yield the slots in key order; a repeated slot is yielded each time."""
        return (part for part in self.parts if isinstance(part, Slot))

    @property
    def literal_prefix(self) -> bytes:
        """The bytes before the first slot; every key of the pattern starts with them."""
        first = self.parts[0] if self.parts else b""
        return first if isinstance(first, bytes) else b""

    def __str__(self) -> str:
        return "".join(
            part.decode("utf-8", "surrogateescape") if isinstance(part, bytes) else str(part) for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a join: an operator over the keys of a pattern."""

    operator: Operator
    pattern: Pattern
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.operator} {self.pattern}"


@dataclass(frozen=True, slots=True)
class Push:
    """Materialise the ranges that are read, and keep them up to date (the default)."""

    def __str__(self) -> str:
        return "push"


@dataclass(frozen=True, slots=True)
class Pull:
    """Compute on every read and keep nothing."""

    def __str__(self) -> str:
        return "pull"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Materialise the ranges that are read, and keep them unchanged for ``age_s`` seconds."""

    age_s: Decimal

    def __str__(self) -> str:
        return f"snapshot {self.age_s}"


Maintenance = Push | Pull | Snapshot


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A whole cache join as declared; `str` prints it in the language, ready to be parsed again."""

    output: Pattern
    sources: tuple[Source, ...]
    maintenance: Maintenance = Push()
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def is_unique(self) -> bool:
        """Whether each output key has at most one contribution, a copy: the output has every slot of the sources."""
        shown = {slot.name for slot in self.output.slots()}
        return all(
            source.operator in (Operator.CHECK, Operator.COPY)
            and all(slot.name in shown for slot in source.pattern.slots())
            for source in self.sources
        )

    def __str__(self) -> str:
        kept = "" if isinstance(self.maintenance, Push) else f"{self.maintenance} "
        return f"{self.output} = {kept}{' '.join(map(str, self.sources))}"
