"""Tables that a home computes and computes use as base data: the output of its joins, watched range by range.

    database's event -> engine -> Exports -> relay    one event: base rows, and the exported rows that follow from them

    votes_at|ann|  = count vote|ann|<id>|<voter>      here: 100,000 rows of `vote` are counted where they are
    karma|<author> = sum votes_at|<author>|<home>     at a compute: it loads one row

Exported rows follow from the database's rows alone, so they are, as these, a function of the position.

Source:
    PNUTS, local view tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from pequod.engine import Engine, MissingError, PequodError, Watch
from pequod.errors import BadRequestError, NotWatchableError
from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER
from pequod_server.backing import Changes, Event, History, KeyRange, Reload, RowChange
from pequod_server.backing.rows import Clip
from pequod_server.homes.home.relay import Relay

#: Watches beside those that are wanted, before the others are looked for.
_UNWANTED_MAX: Final = 64


class Exports:
    """Follows the exported ranges that computes hold, and has the relay told of their changes.

    Args:
        tables: The exported tables.
        owned: The tables of the database.

    Invariants:
        1. After each event, all changes of watched ranges that follow from it are in the relay, at its position.
    """

    def __init__(self, engine: Engine, relay: Relay, tables: Iterable[bytes], owned: Iterable[bytes]) -> None:
        self._engine = engine
        self._relay = relay
        self.tables = frozenset(tables)
        self._owned = frozenset(owned)
        self._watches: dict[KeyRange, Watch] = {}
        #: The watches that have something to settle; always this dictionary, which they write into.
        self._woken: dict[KeyRange, None] = {}
        self._wanted_count = 0
        #: The engine's position after the last event.
        self._position = 0

    @property
    def is_awake(self) -> bool:
        """Whether the relay wants the changes of all keys, loaded or not."""
        return self._relay.is_awake

    def follow(self, ranges: Sequence[KeyRange]) -> None:
        """Have the relay told of all changes of ranges from this turn on.

        Raises:
            MissingError: Rows of the database that this needs are not loaded.
            BadRequestError: They do not follow from the database's rows, or are not kept up to date by pushing.
        """
        if len(self._watches) > 2 * self._wanted_count + _UNWANTED_MAX:
            self._tidy()
        missing = []
        for one in ranges:
            if one in self._watches:
                continue
            self._refuse_foreign(_table_of(one.first))
            try:
                wake = partial(self._woken.__setitem__, one, None)
                self._watches[one] = self._engine.watch(one.first, one.last, wake)
            except MissingError as error:
                missing.append(error.with_traceback(None))
            except NotWatchableError as error:
                raise BadRequestError(f"the home cannot export the keys from {one.first!r} on: {error}") from error
        if missing:
            raise MissingError([lacking for error in missing for lacking in error.lacking])

    def taken(self, event: Event, history: History, position: int) -> None:
        """Take an event of the database that the engine has taken in, in the same turn."""
        before, self._position = self._position, position
        if isinstance(event, Reload) and self._watches:
            # The rows that they showed are forgotten with their sources.
            self._end(list(self._watches))
            ranges = tuple(KeyRange(name + DELIMITER, prefix_end(name + DELIMITER)) for name in self.tables)
            event = replace(event, ranges=(*event.ranges, *ranges))
        changes, lost = self._settled()
        if lost and self._relay.history is not None:
            # Told before the event: at its position, computes must not show what they have of these ranges.
            self._end(lost)
            told = Reload(before, tuple(lost), "the home has to compute its rows again")
            self._relay.taken(told, self._relay.history, before)
        if isinstance(event, Changes):
            event = replace(event, changes=(*event.changes, *changes))
        else:
            assert not changes, "rows that follow from the database's change with its rows alone"
        self._relay.taken(event, history, position)

    def _settled(self) -> tuple[list[RowChange], list[KeyRange]]:
        """Return what has changed in watched ranges, and the ranges of which that is not known."""
        changes: dict[bytes, bytes | None] = {}
        lost: list[KeyRange] = []
        woken = tuple(self._woken)
        self._woken.clear()
        for one in woken:
            watch = self._watches.get(one)
            if watch is None:
                continue
            try:
                found = self._engine.settle(watch)
            except (MissingError, PequodError):
                # Rows that it needs are not loaded, or memory is short: the next read of a compute has them loaded.
                lost.append(one)
                continue
            if watch.ended is not None:
                lost.append(one)
            else:
                # A count changes with each row of a commit, and watches may share keys.
                changes.update((key, new) for key, _, new in found)
        return [RowChange(*one) for one in changes.items()], lost

    def _refuse_foreign(self, table: bytes) -> None:
        """Pass if all keys of a computed table follow from the database's.

        Raises:
            BadRequestError: Some do not, or no join computes the table.
        """
        seen: set[bytes] = set()
        waiting = [table]
        while waiting:
            name = waiting.pop()
            if name in seen or name in self._owned:
                continue
            seen.add(name)
            joins = [one.spec for one in self._engine.joins() if _table_of(one.spec.output.literal_prefix) == name]
            if not joins:
                is_it = "it" if name == table else f"{name!r}, from which it follows,"
                raise BadRequestError(
                    f"the home cannot export {table!r}: {is_it} is neither computed nor the database's"
                )
            waiting += [_table_of(source.pattern.literal_prefix) for spec in joins for source in spec.sources]

    def _tidy(self) -> None:
        """End the watches of ranges that no compute wants any more."""
        relay = self._relay
        bits = sum(relay.subscribers)
        wanted = Clip(relay.wants.ranges_of(bits)) if bits else Clip([])
        self._end([one for one in self._watches if not wanted.touches(one)])
        self._wanted_count = len(self._watches)

    def _end(self, ranges: Iterable[KeyRange]) -> None:
        for one in ranges:
            self._engine.unwatch(self._watches.pop(one))
            self._woken.pop(one, None)

    def stop(self) -> None:
        """Watch nothing more."""
        self._end(list(self._watches))


def _table_of(key: bytes) -> bytes:
    return key.partition(DELIMITER)[0]
