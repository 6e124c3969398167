"""The sources of a backfill as they were at its revision, for the loops that find where its contexts wait."""

from __future__ import annotations

from typing import Final

from pequod.answers.rows import Rows
from pequod.engine.base.groups import Groups
from pequod.engine.joins.contexts import Log
from pequod.engine.joins.timeline import Around
from pequod.engine.reads.sources import SourceReader
from pequod.engine.writes.backfill import Backfill, as_they_were
from pequod.language.narrowing import Narrowed


class SourcesAsOf:
    """The sources of a backfill as they were at its revision; of the value source, only what has changed since."""

    __slots__ = ("_backfill", "_present", "_value_source", "changed", "frame_prefixes")

    def __init__(self, backfill: Backfill, present: SourceReader) -> None:
        self._backfill = backfill
        #: Reads what the sources are now.
        self._present = present
        self._value_source = backfill.plan.value_depth
        #: The prefixes of the value source's keys that the frames know, if copies are the same in all contexts.
        self.frame_prefixes: list[bytes] = []
        #: (depth, source key) -> value at the revision, of keys that were read and have changed since.
        self.changed: Log = {}

    def read(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> Rows:
        """Return the rows of a check source; none of the value source, whose rows were read elsewhere."""
        if source == self._value_source:
            if self._backfill.copies_alike:
                self.frame_prefixes.append(prefix)
            else:
                self._note(source, prefix, first, last)
            return _NO_ROWS
        changed = self._note(source, prefix, first, last)
        rows = self._present.read(source, prefix, first, last)
        return as_they_were(rows, changed, self._backfill.record_of(source))

    def groups(self, source: int, _around: Around, prefixes: list[bytes], _narrowed: Narrowed) -> Groups:
        """Return no group of the value source, whose rows were read elsewhere."""
        assert source == self._value_source, "it is the last one"
        assert self._backfill.copies_alike, "as they are wherever the timeline's kernel asks"
        self.frame_prefixes += prefixes
        return Groups()

    def look_ahead(self, source: int, prefix: bytes, around: Around, narrowed: Narrowed) -> None:
        """Do nothing: all sources of a backfill are loaded."""

    def read_end(
        self, source: int, prefix: bytes, first: bytes, last: bytes | None, limit: int | None, *, is_last: bool
    ) -> Rows:
        """Return the same as `read`."""
        assert limit is None or is_last is not None
        return self.read(source, prefix, first, last)

    def get(self, source: int, key: bytes) -> bytes | None:  # noqa: ARG002 - the protocol's
        """Never called: joins that are backfilled keep frames, and so their sources are read by `read`."""
        raise AssertionError

    def make_room(self, tails: list[bytes]) -> int:  # noqa: ARG002 - the protocol's
        """Never called, because no rows of the value source are read."""
        raise AssertionError

    def _note(self, source: int, prefix: bytes, first: bytes, last: bytes | None) -> list[bytes]:
        """Note and return the keys of a part of a source that have changed since the revision."""
        backfill = self._backfill
        changed = backfill.changed(source, prefix, first, last)
        record = backfill.record_of(source)
        for key in changed:
            self.changed[source, key] = record[key]
        return changed


_NO_ROWS: Final = Rows([], [])
