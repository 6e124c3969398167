"""Calls of those that keep base data elsewhere, such as on a disk.

record       each change of base data is noted, by whatever call it comes   put p|bob|120  -> effects {p|bob|120: Hi}
restore      rows go back to what is kept, where a change could not be
refuse       while nothing can be kept, no write is taken

A *paged table* is one of which some ranges are there alone, because memory is short or they were not needed yet:

page         none of its rows are here
keep         a table comes to be one when the rows that stay take too much memory; all its rows are here then
take_in      rows of a range are here from now on; nothing that was computed can change by that
evict        the least recently used ranges are there alone again
hold_whole   all its rows are here: it is a table like others

Reads raise MissingError for what they lack of it, and so do writes that depend on the present value. A put of a key
that is not here is noted, and needs no more: nothing was computed from it, and no watch is over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pequod.engine.base.deadlines import INSTANT_MAX
from pequod.engine.calls.composed import Composed
from pequod.engine.joins.relations import LooseKeys, Relations
from pequod.engine.memory.ledger import UNLIMITED
from pequod.language.errors import PequodError
from pequod.language.missing import MissingError
from pequod.language.ranges import Range
from pequod.language.spec import DELIMITER

#: The most that one eviction frees: some 1,200 rows, so that it stops other calls for some ms.
_FREE_BYTES_MAX: Final = 256 << 10


class KeptCalls(Composed):
    """Base data that are kept elsewhere, too."""

    def record(self, effects: dict[bytes, bytes | None] | None) -> None:
        """Have each change of base data noted from now on: a key's present value, or None if it is gone.

        Args:
            effects: Takes the changes; its owner looks at them, and clears them. None: nothing is noted any more.

        Cost:
            Of a put, 0.05 µs more.
        """
        self._effects = self._writer.effects = effects

    def refuse_writes(self, error: Callable[[], PequodError] | None) -> None:
        """Refuse puts and removals from now on, with the error that is made for each; None: they are taken again."""
        self._closed = self._admission.closed = error

    def restore(self, rows: Mapping[bytes, bytes | None], deadlines: Mapping[bytes, int]) -> None:
        """Set base rows as they are kept, and their dependants, while writes are refused or not.

        Args:
            rows: Values, None for what is not there.
            deadlines: Of those of the keys that have one.

        Requires:
            Each key was a base key, of no database, when it was noted.
        """
        for key, value in rows.items():
            relations = self._directory.find(key) or self._directory.at(key.partition(DELIMITER)[0])
            self._store.away_deadlines.pop(key, None)
            if relations.table.is_away(key):
                continue
            self.revision += self._writer.set_base(relations, key, value)
            self._deadlines.remove(key)
            if key in deadlines:
                self._deadlines.set(self._store.own_key(key), deadlines[key])

    def go_on_from(self, revision: int) -> None:
        """Count changes on from those that an earlier life of the data has counted.

        Requires:
            It has counted no fewer than this engine.
        """
        assert revision >= self.revision, "revisions do not go back"
        self.revision = revision
        self.ledger.weigh_next()

    # Paged tables.

    def page(self, name: bytes) -> None:
        """Note that a table has rows that are kept elsewhere, and that none of them is here.

        Requires:
            The table has no rows here, no join computes its keys, and changes are recorded before the next write.
        """
        self._paged.page(name)
        self._hits.clear()

    def keep(self, told: Callable[[bytes], object]) -> None:
        """Have the largest tables be paged once rows that stay would take more memory than puts may have.

        Args:
            told: Is called with the name of each of them.

        Requires:
            Nothing is materialised, and changes are recorded before the next write.

        Cost:
            What waits for changes of rows takes 75 bytes more a frame, so that it is found by ranges of keys.
        """
        if self.ledger.limit_bytes >= UNLIMITED:
            return
        self._store.keep()

        def page_more() -> bool:
            name = self._paged.page_largest()
            if name is None:
                return False
            self._hits.clear()
            told(name)
            return True

        self._memory.page_more = page_more
        self._memory.free_bytes_max = _FREE_BYTES_MAX

    def count_by(self, kept: Callable[[Range], int | None]) -> None:
        """Have counts of paged tables of which not all rows are here ask what keeps them, from now on.

        Args:
            kept: Returns how many rows of a range there are now, with all recorded changes; None if that is not known:
                then the count raises MissingError with `Uncounted`. It must not call the engine.
        """
        self._counts.kept = kept

    @property
    def has_paged(self) -> bool:
        """Whether a table is paged."""
        return any(table.is_paged for table in self._store.backed)

    def may_page(self, name: bytes) -> bool:
        """Return whether a table may be kept: no join computes its keys, and it has no rows here."""
        relations = self._directory.by_name.get(name)
        return relations is None or not (relations.outputs or relations.table.entry_count)

    def is_paged(self, key: bytes) -> bool:
        """Return whether a key is of a paged table."""
        table = self._store.tables.get(key.partition(DELIMITER)[0])
        return table is not None and table.is_paged

    def take_in(
        self,
        first: bytes,
        last: bytes,
        keys: list[bytes],
        values: list[bytes],
        deadlines: Sequence[tuple[bytes, int]] = (),
    ) -> None:
        """Take in a range as it is kept: the parts of it in paged tables that are not here.

        Args:
            keys: All keys of the range that are kept, in order; those that are here, or of other tables, are ignored.
            deadlines: Of those of the keys that have one. Those that are due are removed, and not taken in.

        Raises:
            LimitExceededError: There is no memory for it, even after eviction; nothing of it is here.

        Cost:
            0.4 µs for each row.
        """
        now_ms = self._deadlines.now_ms
        due = {key for key, at_ms in deadlines if at_ms <= now_ms}
        for key in due:
            self.expire_away(key)
        if due:
            rows = [row for row in zip(keys, values, strict=True) if row[0] not in due]
            keys, values = [key for key, _ in rows], [value for _, value in rows]
        gaps = self._paged.take_in(first, last, keys, values)
        for key, at_ms in deadlines:
            if key not in due and any(gap.first <= key < gap.last for gap in gaps):
                self._deadlines.set(self._store.own_key(key), at_ms)
        self._paged.hold_taken(gaps, self.revision)

    def hold_whole(self, name: bytes) -> None:
        """Note that all rows of a paged table are here, and that none is to be evicted.

        Requires:
            All of its range was taken in.
        """
        self._paged.hold_whole(name)

    def take_away_deadlines(self) -> dict[bytes, int]:
        """Return the deadlines of recorded keys that are not here, for what keeps them; they are not given again."""
        found = self._store.away_deadlines
        self._store.away_deadlines = {}
        return found

    def take_first_away_ms(self) -> int:
        """Return an instant before which no key has expired that went away since the last call."""
        found = self._store.away_first_ms
        self._store.away_first_ms = INSTANT_MAX
        return found

    def expire_away(self, key: bytes) -> None:
        """Remove a key whose deadline has come as it is kept, if it is not here; else it expires by itself."""
        relations = self._directory.find(key)
        if relations is not None and relations.table.is_away(key):
            self._note_away(key, None)
            self._store.expired_count += 1

    def discard(self, key: bytes) -> None:
        """Remove a key of which the caller knows whether it was there, though its row may be evicted since."""
        relations = self._directory.find(key)
        if relations is not None:
            self._set(relations, key, None)
            self._deadlines.remove(key)

    def _note_away(self, key: bytes, value: bytes | None) -> None:
        """Note a change of a key that is not here. Nothing depends on it; whether it is another value is not known."""
        assert self._effects is not None, "what keeps the other rows records changes"
        self._effects[key] = value
        self._store.away_deadlines.pop(key, None)
        self.revision += 1

    def _set(self, relations: Relations | LooseKeys, key: bytes, value: bytes | None) -> bool:
        """Set a base row (None: remove it), or note that of a key that is not here, and count the change.

        Returns:
            Whether a row that is here is another now.
        """
        if relations.table.is_away(key):
            self._note_away(key, value)
            return False
        is_other = self._writer.set_base(relations, key, value)
        self.revision += is_other
        return is_other

    def _refuse_away(self, key: bytes) -> None:
        """Raise MissingError for a key whose value is not known here."""
        relations = self._directory.find(key)
        if relations is not None and relations.table.is_away(key):
            # What the last read has used may go for it.
            self._reads.begin()
            raise MissingError((Range(key, key + b"\0"),))

    def _refuse_lacking(self, first: bytes, last: bytes | None, limit: int | None) -> None:
        """Raise MissingError if the first rows of a range are not all here."""
        lacking = self._store.lacking(first, last, self._reads.begin().number, limit, reverse=False)
        if lacking:
            raise MissingError(lacking)
