"""The engine: an ordered key-value store whose computed keys keep themselves fresh.

>>> from pequod.engine import Engine, JoinSpec, Operator, Pattern, Slot, Source
>>> user, poster, time = Slot("user"), Slot("poster"), Slot("time", 3)
>>> timeline = JoinSpec(
...     Pattern((b"t|", user, b"|", time, b"|", poster)),
...     (
...         Source(Operator.CHECK, Pattern((b"s|", user, b"|", poster))),
...         Source(Operator.COPY, Pattern((b"p|", poster, b"|", time))),
...     ),
... )
>>> engine = Engine()
>>> _ = engine.add_joins([timeline])
>>> engine.put(b"s|ann|bob", b"1"); engine.put(b"p|bob|100", b"Hi")
>>> engine.scan(b"t|ann|", b"t|ann}")
Rows(keys=[b't|ann|100|bob'], values=[b'Hi'])
>>> engine.put(b"p|bob|120", b"again")
>>> engine.scan(b"t|ann|101", b"t|ann}")
Rows(keys=[b't|ann|120|bob'], values=[b'again'])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pequod.answers.changes import Change
from pequod.answers.rows import Rows
from pequod.engine.calls.databases import DatabaseCalls
from pequod.engine.calls.expiring import ExpiryCalls
from pequod.engine.calls.joins import JoinCalls
from pequod.engine.calls.kept import KeptCalls
from pequod.engine.calls.replacing import ReplaceCalls
from pequod.engine.calls.shown import ShownCalls
from pequod.engine.joins.relations import Relations
from pequod.engine.joins.watches import Watch
from pequod.language.conditions import MET, Condition, Met, Unmet, holds
from pequod.language.deadlines import KEEP, NO_DEADLINE, deadline_after
from pequod.language.decimals import added, number_of_delta
from pequod.language.errors import BackedKeyError, NoDeadlineError
from pequod.language.missing import MissingError
from pequod.language.ranges import Range
from pequod.native import NativeBatch


class Engine(DatabaseCalls, ExpiryCalls, JoinCalls, KeptCalls, ReplaceCalls, ShownCalls):
    """The core: synchronous, deterministic, without I/O and without a clock.

    Requires:
        One thread at a time; the ``now`` of reads (seconds from any origin) never goes backwards.

    Ensures:
        A `scan` or `get` returns exactly what an evaluation of all joins from scratch would, over the present base data
        (for a snapshot join: as it was at one moment within its age). A call that raises changed nothing.

    A table may be *backed*: a database owns its keys. Then clients cannot put its keys. `load` brings in ranges that
    reads need and name with MissingError, `apply` takes the database's changes, and `forget` makes ranges missing
    again.

    Args:
        backed: The names of the backed tables, without the delimiter.
        can_search: Returns whether the database behind them can be asked by other columns than those of its keys.
        at_once: Whether reads do what takes long at once. If not, a read raises MissingError for an index or a range of
            rows that takes longer than a slice, which `index_some` and `compute_some` make slice by slice.
        memory_limit: The greatest number of bytes of all data. Above it, data that can be made again are evicted, the
            least recently used first; puts and reads that still do not fit are refused.
        priorities: By the names of joins and backed tables, 0 for names that are not given: lower ones are evicted
            first, PINNED never.
    """

    def put(self, key: bytes, value: bytes) -> None:
        """Write base data: set ``key`` to ``value`` and bring its dependants up to date.

        Raises:
            InvalidKeyError: The key is empty.
            LimitExceededError: The key or the value is too long, or there is no memory for it.
            ComputedKeyError: An installed join computes this key.
            BackedKeyError: A database owns this key.

        Cost:
            O(key length), plus 0.4 µs or so for each computed key that changes.
        """
        if not self._put_quick(key, value):
            self._admission.check_sizes(key, value)
            relations = self._admission.admit(key, value, self.revision)
            is_other = self._set(relations, key, value)
            if self._deadlines and self._deadlines.remove(key) and not is_other:
                self._note_deadline(key, value)

    def put_for(self, key: bytes, value: bytes, ttl_ms: int) -> None:
        """Write base data that expires; a `put` without a time to live takes the deadline away.

        Args:
            ttl_ms: From the present instant on, as `expire_due` was told it; 0: for ever; KEEP: up to the deadline that
                the key has, if it has one.

        Raises:
            InvalidTtlError: It is longer than a hundred years.
            NoDeadlineError: A database owns this key, and keeps no deadlines.
            InvalidKeyError, LimitExceededError, ComputedKeyError: As `put`.
        """
        if not self._put_for_quick(key, value, ttl_ms):
            deadlines = self.later_deadlines([key], ttl_ms)
            if ttl_ms not in (0, KEEP):
                self._refuse_deadline(key, value)
            self.put(key, value)
            self.set_deadlines(deadlines)

    def expire(self, key: bytes, ttl_ms: int) -> bool:
        """Have a base key expire, or (0) live for ever; return whether it is there.

        Raises:
            InvalidTtlError, NoDeadlineError, InvalidKeyError, LimitExceededError, ComputedKeyError: As `put_for`.
        """
        at_ms = deadline_after(self._deadlines.now_ms, ttl_ms)
        self._refuse_deadline(key)
        self._refuse_away(key)
        if self._deadlines.is_due:
            self._expire_key(key)
        value = self._store.get(key)
        if value is None:
            return False
        if ttl_ms:
            self._deadlines.set(self._store.own_key(key), at_ms)
            self._note_deadline(key, value)
        elif self._deadlines.remove(key):
            self._note_deadline(key, value)
        return True

    def remaining_ms(self, key: bytes, *, now: float = 0.0) -> int | None:
        """Return how long a key lives from the present instant on, None if it is not there.

        Returns:
            NO_DEADLINE if it does not expire: a key without a deadline, or one that a join computes.

        Raises:
            NoDeadlineError: A database owns this key that keeps none, or a home, which may know of one.
            MissingError: As `get`.
        """
        relations = self._directory.find(key)
        if relations is not None and relations.is_backed and not self.has_backed_deadlines:
            raise NoDeadlineError(key)
        if self.get(key, now=now) is None:
            return None
        at_ms = self.deadline_of(key)
        return NO_DEADLINE if at_ms is None else at_ms - self._deadlines.now_ms

    def _refuse_deadline(self, key: bytes, value: bytes = b"") -> None:
        if self.owned_by_database(key, value):
            raise BackedKeyError(key) if self.has_backed_deadlines else NoDeadlineError(key)

    def put_all(self, keys: Sequence[bytes], values: Sequence[bytes], ttl_ms: int = 0) -> None:
        """Write base data, all rows or none: `put` for each, in order, after all have been checked.

        Args:
            ttl_ms: Of each of them, as `put_for` takes it.

        Requires:
            There are as many values as keys.

        Raises:
            InvalidTtlError: As `put_for`; nothing is written.
            InvalidKeyError, LimitExceededError, ComputedKeyError, BackedKeyError: As `put`; nothing is written.

        Cost:
            That of `put` for each row; for ascending keys of tables that are not watched and whose readers have
            materialised nothing, a quarter of it (bench row: put run).
        """
        deadlines = self.later_deadlines(keys, ttl_ms) if ttl_ms else ()
        runs = self._admission.admit_all(keys, values, self.revision)
        if self._deadlines:
            for key, value in zip(keys, values, strict=True):
                # A row with another value counts once, below.
                if self._deadlines.remove(key) and self._store.get(key) == value:
                    self._note_deadline(key, value)
        for name, start, stop in runs:
            relations = self._directory.loose if name is None else self._directory.at(name)
            if isinstance(relations, Relations) and stop - start > 1 and not relations.table.is_paged:
                self.revision += self._writer.set_run(relations, list(keys[start:stop]), list(values[start:stop]))
                continue
            for at in range(start, stop):
                self._set(relations, keys[at], values[at])
        self.set_deadlines(deadlines)

    def write_if(
        self, key: bytes, value: bytes | None, condition: Condition, *, ttl_ms: int = 0, now: float = 0.0
    ) -> Met | Unmet:
        """Put base data, or (None) remove it, if the present value of ``key`` meets a condition.

        Args:
            ttl_ms: Of a put, as `put_for` takes it.

        Raises:
            InvalidTtlError, NoDeadlineError: As `put_for`, whether the condition holds or not.
            InvalidKeyError, LimitExceededError, ComputedKeyError, BackedKeyError: As `put`, whether the condition holds
                or not.

        Cost:
            That of a `get` and a `put`.
        """
        if ttl_ms != KEEP:
            deadline_after(0, ttl_ms)
        if self.owned_by_database(key, value or b""):
            is_refused = ttl_ms not in (0, KEEP) and not self.has_backed_deadlines
            raise NoDeadlineError(key) if is_refused else BackedKeyError(key)
        present = self.get(key, now=now)
        if not holds(condition, present):
            return Unmet(present)
        if value is None:
            self.remove(key)
        else:
            self.put_for(key, value, ttl_ms)
        return MET

    def add(self, key: bytes, delta: bytes, *, now: float = 0.0) -> bytes:
        """Add a number to the value of ``key``, 0 if it is absent, and return the sum, which is the new value.

        A key that has a deadline keeps it.

        Raises:
            InvalidDeltaError, NotNumberError: The delta, or the present value, is no number.
            SumTooLongError: The sum has too many digits.
            InvalidKeyError, LimitExceededError, ComputedKeyError, BackedKeyError: As `put`.

        Cost:
            That of a `get` and a `put`.
        """
        number_of_delta(delta)
        if self.owned_by_database(key):
            raise BackedKeyError(key)
        total = added(key, self.get(key, now=now), delta)
        self.put_for(key, total, KEEP)
        return total

    def remove(self, key: bytes) -> bool:
        """Remove base data; return whether the key was there.

        Raises:
            ComputedKeyError: An installed join computes this key.
            BackedKeyError: A database owns this key.
            MissingError: The key is of a paged table, and not loaded.
        """
        was_there = self._remove_quick(key)
        if was_there is not None:
            return was_there
        self._admission.check_sizes(key)
        relations = self._directory.find(key)
        if relations is None:
            return False
        if relations.is_owned:
            self._admission.refuse_owned(relations, key)
        self._refuse_away(key)
        if self._deadlines.is_due:
            self._expire_key(key)
        is_there = self._writer.set_base(relations, key, None)
        self.revision += is_there
        self._deadlines.remove(key)
        return is_there

    def remove_range(self, first: bytes, last: bytes | None, limit: int | None = None) -> list[bytes]:
        """Remove the base data of ``[first, last)`` (None: to the end), and return its keys; computed keys stay.

        Keys that are due are among them.

        Args:
            limit: The greatest number of keys, the first of the range.

        Raises:
            BackedKeyError: A database owns keys in the range; nothing is removed.
            MissingError: Rows of it are not loaded; nothing is removed.

        Cost:
            That of `remove` for each key.
        """
        if last is not None and first >= last:
            return []
        self._admission.refuse_range(first, last)
        self._refuse_lacking(first, last, limit)
        keys = self._store.slice(first, last, limit).keys
        for key in keys:
            self.remove(key)
        return keys

    def get(self, key: bytes, *, now: float = 0.0) -> bytes | None:
        """Return the value of ``key``, None if it is absent; a computed key is computed if need be.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.
        """
        found = self._get_quick(key, now)
        if found is not False:
            return found
        if self._deadlines.is_due:
            self._expire_key(key)
        relations = self._directory.find(key)
        if relations is None:
            return None
        table = relations.table
        if table.presence is not None and not table.presence.holds(key, key + b"\0", self._reads.begin(now).number):
            raise MissingError((Range(key, key + b"\0"),))
        value = table.get(key)
        if value is not None:
            return value
        if not relations.outputs:
            return None
        read = self._reads.begin(now)
        for join in relations.outputs:
            if join.match_output(key):
                value = self._scans.get(join, key, read)
                if value is not None:
                    return value
        return None

    def scan(
        self,
        first: bytes,
        last: bytes | None,
        *,
        limit: int | None = None,
        reverse: bool = False,
        now: float = 0.0,
    ) -> Rows:
        """Return the rows of ``[first, last)`` (None: to the end), computed where joins cover it.

        Args:
            limit: The greatest number of rows, from the end where reading starts.
            reverse: Read from the last key down.
            now: The time, for snapshots.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            O(rows returned), and about 1 µs more, if the range is materialised.
        """
        rows = self._scan_quick(first, last, limit, reverse, now)
        if rows is None:
            if self._deadlines.is_due:
                self._expire_range(first, last, limit, reverse=reverse)
            rows = self._scans.scan(first, last, limit, reverse=reverse, now=now)
        return rows

    def count(self, first: bytes, last: bytes | None, *, now: float = 0.0) -> int:
        """Return the number of keys that `scan` would return.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            O(log n) if one join or the store alone has the range, else that of the scan.
        """
        if self._deadlines.is_due:
            self._expire_range(first, last)
        return self._counts.count(first, last, self._reads.begin(now))

    def run_quick(self, batch: NativeBatch, now: float) -> bool:
        """Run the commands of a native batch that take only a look-up and a copy; return whether one takes more.

        Requires:
            The engine is native, and not ``is_timed``.
        """
        return batch.run(self, now)

    def watch(self, first: bytes, last: bytes | None, wake: Callable[[], None], *, now: float = 0.0) -> Watch:
        """Follow the changes of ``[first, last)`` (None: to the end), computed keys included.

        Args:
            wake: Called when there is something to `settle`; must not call the engine.

        Raises:
            NotWatchableError: A join over the range is not kept up to date by pushing.
            MissingError: Ranges of backed tables that this needs are not loaded.

        Cost:
            That of a scan of the range; later some 0.2 µs more for each computed row that changes in the table (bench
            row: views: put, told), and 3 where the table has more than 16 watches.
        """
        if self._deadlines.is_due:
            self._expire_range(first, last)
        return self._following.begin(first, last, wake, self._reads.begin(now))

    def settle(self, watch: Watch, *, now: float = 0.0) -> list[Change]:
        """Bring a watched range up to date and return its changes since the last time, in order.

        A scan of the range now equals the earlier scan with these changes applied. The watch ends if they cannot be
        found, because memory is short, or because a join under it is not kept up to date any more.

        Raises:
            MissingError: Ranges of backed tables that this needs are not loaded; nothing has been taken.
        """
        return self._following.settle(watch, self._reads.begin(now))

    def unwatch(self, watch: Watch) -> None:
        """End a watch."""
        self._directory.remove_watch(watch)
