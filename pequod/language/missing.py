"""What reads lack of a database: ranges of its keys, and searches, which ask by other columns.

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
from pequod.language.ranges import Range, united
from pequod.language.spec import Bind, Pattern
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


#: What a read lacks.
Lacking = Range | SearchRange


class MissingError(Exception):
    """A read needs rows of backed tables that are not loaded: load what it lacks, and read again.

    Not a refusal, and so no `PequodError`: only code that gave the engine backed tables sees it. The repeated read may
    need more, which was not known before; no chain of joins needs more rounds than it has sources.

    Args:
        lacking: Ranges of keys for `Engine.load`, and of searches for `Engine.load_found`.
    """

    def __init__(self, lacking: Iterable[Lacking]) -> None:
        by_search: dict[Search | None, list[Range]] = {}
        for one in lacking:
            by_search.setdefault(one.search if isinstance(one, SearchRange) else None, []).append(Range(*one[:2]))
        #: In order; they neither overlap nor touch each other.
        self.ranges = united(by_search.pop(None, ()))
        #: The same for each search.
        self.searches = tuple(
            SearchRange(*one, search) for search, found in by_search.items() if search for one in united(found)
        )
        super().__init__(f"{len(self.lacking)} ranges are not loaded, the first of them {self.lacking[0]}")

    @property
    def lacking(self) -> tuple[Lacking, ...]:
        """The ranges, and those of searches."""
        return *self.ranges, *self.searches


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
