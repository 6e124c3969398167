"""What reads lack: ranges of a database's keys, searches, which ask it by other columns, indexes, and computed rows.

    by_author|<author>|<id> = copy article|<id> with author = <author>

    own     article|<id>               the keys of the rows
    plain   article|<author>|<id>      the order in which the join reads them
    field   author                     a column, if the database has it

A range of plain keys is asked for as a range of keys is: the rows of `article|bob|` .. `article|bob}` are bob's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pequod.language.containing import keys_of
from pequod.language.ranges import Range, prefix_end, united
from pequod.language.spec import DELIMITER, Bind, Pattern
from pequod.language.views import RecordView


@dataclass(frozen=True, slots=True)
class Search:
    """What to ask for.

    Invariants:
        1. Each slot of the plain keys is one of the own keys, or has a field, or its values are not to be asked for.
    """

    own: Pattern
    plain: Pattern
    #: The slots of outer fields, each with the name of its field.
    fields: tuple[tuple[str, str], ...]

    @property
    def keys(self) -> Range:
        """The range of the own keys."""
        return Range(*keys_of(self.own))


class SearchRange(NamedTuple):
    """A range of the plain keys of a search."""

    first: bytes
    last: bytes
    search: Search


class Unindexed(NamedTuple):
    """An index that is to be made: the rows of a table, in the order in which a join reads its records."""

    view: RecordView


class Uncomputed(NamedTuple):
    """A range of a join's rows that takes long to compute."""

    first: bytes
    last: bytes


class Due(NamedTuple):
    """That keys are gone which were due at an instant, of a range that is too long to remove them by the way."""

    at_ms: int


class FirstRows(NamedTuple):
    """The first rows of a range, whose rest a read need not see; of paged tables, some of them are not here."""

    first: bytes
    last: bytes
    row_count: int
    #: Whether they are the last rows instead.
    is_down: bool


class Uncounted(NamedTuple):
    """How many rows there are of a range of a paged table, of which not all are here."""

    first: bytes
    last: bytes


#: What a read lacks of a database, or of a disk.
Loadable = Range | SearchRange
#: What a read lacks.
Lacking = Loadable | Unindexed | Uncomputed | Due | FirstRows | Uncounted


class RangeRows(NamedTuple):
    """A range as a database has it."""

    first: bytes
    last: bytes | None
    #: All rows of the range that are in backed tables; others are ignored.
    rows: Iterable[tuple[bytes, bytes]]


class NextGroups(NamedTuple):
    """What a read will need once it has keys that it lacks now: one group of rows for each of them.

        prefix s|ann|   before p|   after |   first 0100   last None
        key    s|ann|bob         ->  the range p|bob|0100 .. p|bob}

    Who loads the lacking range may load these groups with it, in one round; the read never needs that.
    """

    #: The keys begin with it, and have just the slot after it.
    prefix: bytes
    #: A group's prefix is its slot between these; the slot has this width, or (None) ends at the delimiter.
    before: bytes
    width: int | None
    after: bytes
    #: The part of each group, relative to its prefix; None: to its end.
    first: bytes
    last: bytes | None

    def of(self, keys: Iterable[bytes]) -> list[Range]:
        """Return the ranges for some keys that begin with ``prefix``, in their order."""
        known, width = len(self.prefix), self.width
        slots = [key[known:] for key in keys]
        if width is None:
            slots = [slot for slot in slots if slot and DELIMITER not in slot]
        else:
            slots = [slot for slot in slots if len(slot) == width]
        groups = [self.before + slot + self.after for slot in slots]
        ends = [prefix_end(group) if self.last is None else group + self.last for group in groups]
        return [
            Range(group + self.first, end)
            for group, end in zip(groups, ends, strict=True)
            if end is not None and group + self.first < end
        ]


class MissingError(Exception):
    """A read needs rows of backed tables that are not loaded, indexes, or much computed: do that, then read again.

    Not a refusal, and so no `PequodError`: only code that gave the engine backed tables sees it. The repeated read may
    need more, which was not known before; no chain of joins needs more rounds than it has sources.

    Args:
        lacking: Ranges of keys for `Engine.load`, and of searches for `Engine.load_found`; indexes for
            `Engine.index_some`; ranges for `Engine.compute_some`; an instant for `Engine.expire_due`.
        next_groups: What it will lack then, as far as that is known.
    """

    def __init__(self, lacking: Iterable[Lacking], next_groups: Iterable[NextGroups] = ()) -> None:
        ranges: list[Range] = []
        by_search: dict[Search, list[Range]] = {}
        indexes: dict[Unindexed, None] = {}
        uncomputed: dict[Uncomputed, None] = {}
        due: list[Due] = []
        first_rows: dict[FirstRows, None] = {}
        uncounted: dict[Uncounted, None] = {}
        for one in lacking:
            match one:
                case Range():
                    ranges.append(one)
                case SearchRange(first, last, search):
                    by_search.setdefault(search, []).append(Range(first, last))
                case Unindexed():
                    indexes[one] = None
                case Uncomputed():
                    uncomputed[one] = None
                case Due():
                    due.append(one)
                case FirstRows():
                    first_rows[one] = None
                case Uncounted():
                    uncounted[one] = None
        #: In order; they neither overlap nor touch each other.
        self.ranges = united(ranges)
        #: The same for each search.
        self.searches = tuple(SearchRange(*one, search) for search, found in by_search.items() for one in united(found))
        #: Each once.
        self.indexes = tuple(indexes)
        #: Each once.
        self.uncomputed = tuple(uncomputed)
        #: The latest instant, if keys have to expire.
        self.due = tuple(sorted(due)[-1:])
        #: Each once.
        self.first_rows = tuple(first_rows)
        #: Each once.
        self.uncounted = tuple(uncounted)
        #: Each once.
        self.next_groups = tuple(dict.fromkeys(next_groups))
        count, example = len(self.lacking), self.lacking[0]
        super().__init__(
            f"keys that are due at {example.at_ms} ms are not gone yet"
            if isinstance(example, Due)
            else f"{count} ranges or indexes are not there, the first of them {example}"
        )

    @property
    def lacking(self) -> tuple[Lacking, ...]:
        """All that is lacking: ranges first, of keys and of searches."""
        found: list[Lacking] = [*self.ranges, *self.searches, *self.indexes, *self.uncomputed, *self.due]
        return *found, *self.first_rows, *self.uncounted


def search_of(view: RecordView) -> Search:
    """Return the search for the rows of a view.

    Requires:
        Its plain keys are in an order of their own.
    """
    conditions = view.source.conditions
    fields = [
        (one.slot.name, one.path.names[0])
        for one in conditions
        if isinstance(one, Bind) and not one.is_each and len(one.path.names) == 1
    ]
    keyed = {slot.name for slot in view.source.pattern.slots()}
    return Search(
        view.source.pattern, view.pattern, tuple((slot, field) for slot, field in fields if slot not in keyed)
    )
