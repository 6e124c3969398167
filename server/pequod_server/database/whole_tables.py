"""Small tables that are loaded as a whole: the first read of any of their keys brings all of them.

    read s|ann|    lacks [s|ann| .. s|ann})    loads [s| .. s})
    read s|bob|    lacks nothing
    evicted: [s|c .. s|e)    read s|dan|    loads [s|c .. s|e)

One subscription at the home stands for the table, and later reads wait for no load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pequod.engine import Engine, Loadable, Range, SearchRange
from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER
from pequod_server.backing import KeyRange


class WholeTables:
    """Widens what reads lack.

    Args:
        names: The tables.
    """

    def __init__(self, engine: Engine, names: Iterable[bytes] = ()) -> None:
        self._engine = engine
        self._names = frozenset(names)

    def widened(self, lacking: Iterable[Loadable], owned: Callable[[KeyRange], Iterable[KeyRange]]) -> list[Loadable]:
        """Return the ranges to load: of each whole table, the absent parts that a database owns.

        Args:
            owned: Returns the parts of a range that are the database's.
        """
        if not self._names:
            return list(lacking)
        found: dict[Loadable, None] = {}
        for one in lacking:
            name = b"" if isinstance(one, SearchRange) else one.first.partition(DELIMITER)[0]
            if name not in self._names:
                found[one] = None
                continue
            for part in owned(KeyRange(name + DELIMITER, prefix_end(name + DELIMITER))):
                assert part.last is not None, "tables end"
                found |= dict.fromkeys(Range(*gap) for gap in self._engine.absent(part.first, part.last))
        return list(found)
