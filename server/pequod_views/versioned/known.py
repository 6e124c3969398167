"""The live rows that a process knows without a read, while it has their share without a break.

Nobody else moves a record whose share this process has, so the row that its last turn left is the live one, with the
cells that it wrote. What the dead left elsewhere is not known here; a read could have missed it as well, as long as it
was not at a majority, and what is mended is forgotten here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from pequod_views.versioned.records import Cells, merge

#: Of a share, of which a process has 64 at most by default.
_ROWS_MAX: Final = 256
#: Of a row, in characters: larger ones are read again.
_SIZE_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class LiveRow:
    """The row that a base record has in a view."""

    row: str
    #: The timestamp of its view key; NEVER for the root of a record that had none.
    time: int
    is_finished: bool
    #: The cells of its columns, if they were asked for.
    columns: Cells


class KnownRows:
    """Rows of the records of a share, by view and base key.

    Invariants:
        1. A row is here only while no turn is under way, or has died, that has the record alone.
        2. It has all cells that were propagated to the record, and perhaps some whose propagation has begun.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], LiveRow] = {}

    def take(self, view: str, base_key: str) -> LiveRow | None:
        """Return a row, and forget it: the turn that has the record alone keeps another one once it is done."""
        return self._rows.pop((view, base_key), None)

    def keep(self, view: str, base_key: str, live: LiveRow) -> None:
        """Know a row, as a turn that has the record alone leaves it."""
        if sum(len(cell.value or "") for cell in live.columns.values()) > _SIZE_MAX:
            self._rows.pop((view, base_key), None)
            return
        self._rows[view, base_key] = live
        if len(self._rows) > _ROWS_MAX:
            del self._rows[next(iter(self._rows))]

    def add(self, view: str, base_key: str, cells: Cells) -> LiveRow | None:
        """Return a row that is about to get more cells, if it is known."""
        live = self._rows.get((view, base_key))
        if live is not None:
            columns = dict(live.columns)
            merge(columns, cells)
            self.keep(view, base_key, replace(live, columns=columns))
        return live
