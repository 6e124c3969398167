"""Keys that are due, and how they go: by the ordinary removal.

    expire_due        the earliest ones, some at a time: before each command, and by a timer
    a get, a scan     those of its own range, before it reads

So a read never shows a key after its deadline, and what joins compute from a key is as that key is at every revision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pequod.answers.changes import Expired
from pequod.engine.base.deadlines import Deadlines
from pequod.engine.calls.composed import Composed
from pequod.language.deadlines import KEEP, deadline_after
from pequod.language.missing import Due, MissingError
from pequod.language.ranges import Range
from pequod.language.spec import DELIMITER

#: How many rows of a range are looked at together; and where other calls wait (``at_once=False``), the most
#: rows that a read looks at, and that it removes: some 2 ms.
_STEP: Final = 256
_LOOKS_MAX: Final = 4_096
_REMOVED_MAX: Final = 512


class ExpiryCalls(Composed):
    """Removes base keys whose deadline has come. The time is an argument, in milliseconds of a wall clock."""

    #: Whether the databases behind the engine keep deadlines and tell them: then they are asked to set one.
    has_backed_deadlines: bool = False

    @property
    def expired_count(self) -> int:
        """How many keys have expired so far."""
        return self._store.expired_count

    def restore_deadlines(self, deadlines: Iterable[tuple[bytes, int]]) -> None:
        """Set the deadlines of base keys, as they were saved with the keys; of a key that is not there nothing is set.

        Args:
            deadlines: Keys, and instants in milliseconds.
        """
        for key, at_ms in deadlines:
            if self._store.get(key) is not None:
                self._deadlines.set(self._store.own_key(key), at_ms)

    def follow_deadlines(self, keys: Iterable[bytes], deadlines: Mapping[bytes, int]) -> None:
        """Have rows of backed tables expire when the database says; those that are not loaded do not matter.

        Args:
            keys: Those whose rows were loaded or have changed.
            deadlines: Of those among them that expire.
        """
        own = self._deadlines
        for key in keys:
            at_ms = deadlines.get(key)
            if at_ms is None or self._store.get(key) is None:
                own.remove(key)
            else:
                own.set(self._store.own_key(key), at_ms)

    def later_deadlines(self, keys: Sequence[bytes], ttl_ms: int) -> list[tuple[bytes, int]]:
        """Return the deadlines that keys will have once they are written, for `set_deadlines`.

        Args:
            ttl_ms: As `Engine.put_for` takes it.

        Raises:
            InvalidTtlError: It is longer than a hundred years.
            MissingError: A key is to keep its deadline, and is of a paged table and not here.
        """
        now_ms = self._deadlines.now_ms
        if ttl_ms == KEEP:
            if away := [Range(key, key + b"\0") for key in keys if self.is_away(key)]:
                self._reads.begin()
                raise MissingError(away)
            return [one for one in self._deadlines.among(list(keys)) if one[1] > now_ms]
        at_ms = deadline_after(now_ms, ttl_ms)
        return [(key, at_ms) for key in keys] if ttl_ms else []

    def set_deadlines(self, deadlines: Iterable[tuple[bytes, int]]) -> None:
        """Set the deadlines of base keys that are there; each is a change."""
        for key, at_ms in deadlines:
            if self.is_away(key):
                # What keeps it has been told of the value.
                self._store.away_deadlines[key] = at_ms
                self._store.away_first_ms = min(self._store.away_first_ms, at_ms)
                self.revision += 1
                continue
            value = self._store.get(key)
            assert value is not None, "it was written just now"
            self._deadlines.set(self._store.own_key(key), at_ms)
            self._note_deadline(key, value)

    @property
    def deadlines(self) -> Deadlines:
        """The deadlines of keys; always this object. Once it is told the present instant, reads remove keys."""
        return self._deadlines

    def deadline_of(self, key: bytes) -> int | None:
        """Return the instant at which a key expires, None if it does not, or is not there."""
        at_ms = self._deadlines.get(key)
        return None if at_ms is None or at_ms <= self._deadlines.now_ms else at_ms

    def expire_due(self, now_ms: int, keys_max: int) -> int:
        """Remove keys that are due, the earliest first; return how many.

        Args:
            now_ms: The present instant, also of the commands that follow. It may be before the last one, if the clock
                was set back: deadlines go by the clock, and what was removed stays away.
            keys_max: The most keys to remove now. If more are due, reads remove those of their own range.

        Cost:
            O(1) if none is due, else that of `Engine.remove` for each.
        """
        if not self._deadlines.tell(now_ms):
            return 0
        count = 0
        while count < keys_max:
            quick, key = self._expire_quick(keys_max - count)
            count += quick
            self._store.expired_count += quick
            if key is None:
                break
            self._expire(key)
            count += 1
        return count

    def is_away(self, key: bytes) -> bool:
        """Return whether a key is of a table of which ranges are elsewhere alone, and not here."""
        relations = self._directory.find(key)
        return relations is not None and relations.table.is_away(key)

    def _note_deadline(self, key: bytes, value: bytes) -> None:
        """Count a change of a deadline, and have what keeps base data elsewhere keep it, too."""
        self.revision += 1
        if self._effects is not None:
            self._effects[key] = value
        relations = self._relations.get(key.partition(DELIMITER)[0])
        if relations is not None and relations.is_watched:
            relations.watches.tell_deadline(key, value)

    def _expire(self, key: bytes) -> None:
        """Remove a key that is due."""
        self._deadlines.remove(key)
        relations = self._directory.find(key)
        assert relations is not None, "keys with deadlines are there"
        is_gone = self._writer.set_base(relations, key, None, Expired)
        self.revision += is_gone
        self._store.expired_count += is_gone

    def _expire_key(self, key: bytes) -> None:
        """Remove a key if it is due."""
        at_ms = self._deadlines.get(key)
        if at_ms is not None and at_ms <= self._deadlines.now_ms:
            self._expire(key)

    def _expire_range(
        self, first: bytes, last: bytes | None, limit: int | None = None, *, reverse: bool = False
    ) -> None:
        """Remove what is due of a range, or of its first base keys if a read takes no more than ``limit``.

        Raises:
            MissingError: The range is so long that other calls would wait: wait until what is due is gone.

        Cost:
            O(rows of the range), 0.3 µs each, and that of the removals.
        """
        if last is not None and first >= last:
            return
        deadlines, looks, removed = self._deadlines, 0, 0
        while True:
            keys = self._store.slice(first, last, _STEP, reverse=reverse).keys
            due = deadlines.due(keys)
            for key in due:
                self._expire(key)
            looks += len(keys)
            removed += len(due)
            if len(keys) < _STEP or (limit is not None and looks - removed >= limit):
                return
            if not self._reader.at_once and (looks >= _LOOKS_MAX or removed >= _REMOVED_MAX):
                raise MissingError((Due(deadlines.now_ms),))
            if reverse:
                last = keys[-1]
            else:
                first = keys[-1] + b"\0"
