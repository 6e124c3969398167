"""A cache join as a value: patterns, sources, maintenance; no behaviour beyond printing.

    t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>
    ^ output pattern              ^ sources, in plan order; exactly one of them gives the value

A source after `unless` must not be there: `unless mute|<user>|<poster>`. Of each user's keys, `keep last 400 of <user>`
leaves the last ones.

>>> pattern = Pattern((b"p|", Slot("poster"), b"|", Slot("time", 10)))
>>> str(pattern)
'p|<poster>|<time:10>'
"""

from __future__ import annotations

import json
import re
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
    #: Its row may be missing, and the fields that it gives are null then: a left outer join.
    OPTIONAL = "check?"
    COPY = "copy"
    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    #: No key of the source matches: it gives no slot a value.
    UNLESS = "unless"

    @property
    def takes_numbers(self) -> bool:
        """Whether the operator leaves out values that are no numbers."""
        return self is Operator.SUM or self is Operator.AVG

    @property
    def gives_value(self) -> bool:
        """Whether the source gives the value of the output key."""
        return self not in (Operator.CHECK, Operator.OPTIONAL, Operator.UNLESS)

    @property
    def binds_slots(self) -> bool:
        """Whether a row of the source has to be there, and gives slots their values."""
        return self not in (Operator.OPTIONAL, Operator.UNLESS)


class NumberForm(StrEnum):
    """How a slot of 16 bytes has a number: as hexadecimal digits that sort as the number does."""

    I64 = "i64"
    F64 = "f64"


#: The width of a slot with a form.
FORM_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """A named part of a pattern: exactly ``width`` bytes, or (None) everything up to the next delimiter."""

    name: str
    width: int | None = None
    #: How fields with numbers are written into it; None: as text. Its width is FORM_WIDTH.
    form: NumberForm | None = None

    def __str__(self) -> str:
        kind = self.form or self.width
        return f"<{self.name}>" if kind is None else f"<{self.name}:{kind}>"


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

    @property
    def table(self) -> bytes:
        """The name of the table that its keys are of."""
        return self.literal_prefix.partition(DELIMITER)[0]

    def __str__(self) -> str:
        return "".join(
            part.decode("utf-8", "surrogateescape") if isinstance(part, bytes) else str(part) for part in self.parts
        )


_BARE = re.compile(r"[^\W\d][\w-]*").fullmatch


@dataclass(frozen=True, slots=True)
class Path:
    """The way to a field of a record: the names of fields, from the outermost to the innermost.

    Without names it is `.`: the value itself, where that is a number, a string, true or false.
    """

    names: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(map(print_name, self.names)) or "."


#: The value itself.
WHOLE: Final = Path(())


def print_name(name: str) -> str:
    """Return the name of a field as the language writes it: in quotes unless it is a word.

    >>> print_name("votes"), print_name("net price")
    ('votes', '"net price"')
    """
    return name if _BARE(name) else json.dumps(name, ensure_ascii=False)


class Comparator(StrEnum):
    """A comparison of a field or a slot with a literal."""

    EQUAL = "="
    NOT_EQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Bind:
    """``path = <slot>``: the field gives the slot its value. ``path[] = <slot>``: each element of the array does."""

    path: Path
    slot: Slot
    is_each: bool = False
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path}{'[]' if self.is_each else ''} = {self.slot}"


@dataclass(frozen=True, slots=True)
class Compare:
    """``path < literal``: selects records by a field."""

    path: Path
    comparator: Comparator
    #: A number, a string, true, false or null as JSON; equal literals are the same text.
    literal: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path} {self.comparator} {self.literal}"


@dataclass(frozen=True, slots=True)
class Exists:
    """``path exists``: selects the records that have a field, null or not."""

    path: Path
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.path} exists"


@dataclass(frozen=True, slots=True)
class CompareSlot:
    """``<slot> < literal``: selects keys by a slot of the source's pattern, as bytes."""

    slot: str
    comparator: Comparator
    #: A string as JSON.
    literal: str
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"<{self.slot}> {self.comparator} {self.literal}"


Condition = Bind | Compare | Exists | CompareSlot


@dataclass(frozen=True, slots=True)
class OneField:
    """``as path``: the source gives one field."""

    path: Path
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class SomeFields:
    """``as {path, name: path}``: the source gives an object of some fields, in this order."""

    fields: tuple[tuple[str, Path], ...]
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        shown = [
            str(path) if path.names[-1:] == (name,) else f"{print_name(name)}: {path}" for name, path in self.fields
        ]
        return f"{{{', '.join(shown)}}}"


Given = OneField | SomeFields


@dataclass(frozen=True, slots=True)
class Source:
    """One source of a join: an operator over the keys of a pattern, perhaps over the fields of their values too."""

    operator: Operator
    pattern: Pattern
    span: Span | None = field(default=None, compare=False, repr=False)
    #: The conditions after ``with``; all of them are to hold.
    conditions: tuple[Condition, ...] = ()
    #: What it gives instead of the whole value, after ``as``.
    given: Given | None = None

    @property
    def has_records(self) -> bool:
        """Whether the values of its keys are looked at: they are records, objects in JSON, or fields themselves."""
        return bool(self.conditions) or self.given is not None

    @property
    def gives_fields(self) -> bool:
        """Whether it adds fields to what the value source gives: a check with an `as`."""
        return self.given is not None and not self.operator.gives_value

    def paths(self) -> Iterator[Path]:
        """Yield the paths of its conditions and of what it gives."""
        yield from (one.path for one in self.conditions if not isinstance(one, CompareSlot))
        if isinstance(self.given, OneField):
            yield self.given.path
        elif self.given is not None:
            yield from (path for _, path in self.given.fields)

    @property
    def is_of_whole_values(self) -> bool:
        """Whether it looks at values themselves, by `.`, and not at the fields of records."""
        return WHOLE in self.paths()

    def slots(self) -> Iterator[Slot]:
        """Yield the slots of its keys in key order, then those that fields bind; some more than once."""
        yield from self.pattern.slots()
        for condition in self.conditions:
            if isinstance(condition, Bind):
                yield condition.slot

    def bound(self) -> Iterator[Slot]:
        """Yield the slots that a row of the source gives values to; what may be missing gives none."""
        return self.slots() if self.operator.binds_slots else iter(())

    def __str__(self) -> str:
        text = f"{self.operator} {self.pattern}"
        if self.conditions:
            text += f" with {', '.join(map(str, self.conditions))}"
        return text if self.given is None else f"{text} as {self.given}"


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
class Keep:
    """``keep last 400 of <user>``: only these keys of each group exist."""

    #: How many keys of a group there are at most.
    count: int
    #: Whether the last ones are kept, else the first ones.
    is_last: bool
    #: The keys of a group agree in these slots, the first ones of the output; without any, all keys are one group.
    slots: tuple[str, ...] = ()
    span: Span | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        of = f" of {', '.join(f'<{name}>' for name in self.slots)}" if self.slots else ""
        return f"keep {'last' if self.is_last else 'first'} {self.count}{of}"


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """A whole cache join as declared; `str` prints it in the language, ready to be parsed again."""

    output: Pattern
    sources: tuple[Source, ...]
    maintenance: Maintenance = Push()
    span: Span | None = field(default=None, compare=False, repr=False)
    #: How many keys of each group there are; None: all.
    keep: Keep | None = None

    @property
    def roles(self) -> tuple[Pattern | Source, ...]:
        """The output and the sources: everything that has slots."""
        return (self.output, *self.sources)

    @property
    def value_depth(self) -> int:
        """The number of the value source.

        Requires:
            There is one; `check_spec` refuses other joins.
        """
        return next(depth for depth, source in enumerate(self.sources) if source.operator.gives_value)

    @property
    def value_source(self) -> Source:
        """The source that gives the value; requires the same."""
        return self.sources[self.value_depth]

    @property
    def is_unique(self) -> bool:
        """Whether each output key has at most one contribution, a copy: the output has every slot of the sources."""
        shown = {slot.name for slot in self.output.slots()}
        return self.value_source.operator is Operator.COPY and all(
            slot.name in shown for source in self.sources for slot in source.bound()
        )

    @property
    def is_composed(self) -> bool:
        """Whether the output's value has fields of several sources."""
        return any(source.gives_fields for source in self.sources)

    @property
    def is_decided(self) -> bool:
        """Whether sources behind the value source decide which of its rows are there."""
        return self.value_depth < len(self.sources) - 1

    @property
    def has_records(self) -> bool:
        """Whether any source looks at the fields of values."""
        return any(source.has_records for source in self.sources)

    def __str__(self) -> str:
        maintained = "" if isinstance(self.maintenance, Push) else f"{self.maintenance} "
        text = f"{self.output} = {maintained}{' '.join(map(str, self.sources))}"
        return text if self.keep is None else f"{text} {self.keep}"
