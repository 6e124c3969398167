"""Admission: the checks of a put before anything is written.

    sizes    the key is not empty, and neither key nor value is too long
    owner    no join computes the key, and no database owns it
    memory   there is room, if the ledger is due to be weighed; data that can be made again is evicted for it

All refusals of writes are here; an admitted row is written without a further check.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice
from operator import lt
from typing import Final, NamedTuple, NoReturn

from pequod.engine.base.store import Store
from pequod.engine.joins.relations import Directory, LooseKeys, Relations
from pequod.engine.memory.eviction import VALUE_STEP, Evictor
from pequod.engine.memory.ledger import ROW, UNLIMITED
from pequod.language.errors import BackedKeyError, ComputedKeyError, InvalidKeyError, LimitExceededError, PequodError
from pequod.language.spec import DELIMITER

#: The first byte above the delimiter: after a table's name, it is above all keys of the table.
_TABLE_END: Final = bytes((DELIMITER[0] + 1,))


class RowRun(NamedTuple):
    """Rows of one table that follow each other in a list of rows; or one row without a table."""

    #: The name of the table, without the delimiter; None: the key has no table.
    name: bytes | None
    start: int
    stop: int


class PutAdmission:
    """Refuses writes that clients may not do, and writes for which there is no memory."""

    __slots__ = (
        "_directory",
        "_ledger",
        "_memory",
        "_store",
        "closed",
        "key_bytes_max",
        "value_bytes_max",
        "value_bytes_quick",
    )

    def __init__(
        self, store: Store, directory: Directory, memory: Evictor, key_bytes_max: int, value_bytes_max: int
    ) -> None:
        self._store = store
        self._directory = directory
        self._memory = memory
        self._ledger = memory.ledger
        #: Makes the error of all writes while none is taken; None: they are taken.
        self.closed: Callable[[], PequodError] | None = None
        self.key_bytes_max = key_bytes_max
        self.value_bytes_max = value_bytes_max
        #: After larger values, the ledger is weighed sooner.
        self.value_bytes_quick = min(value_bytes_max, VALUE_STEP)

    def check_sizes(self, key: bytes, value: bytes = b"") -> None:
        """Refuse an empty key, and a key or a value that is too long; have the ledger weighed sooner for a large value.

        Raises:
            InvalidKeyError, LimitExceededError: The key or the value is refused.
            PequodError: No write is taken now; see `closed`.
        """
        if self.closed is not None:
            raise self.closed()
        if not 0 < len(key) <= self.key_bytes_max or len(value) > self.value_bytes_max:
            self._refuse_sizes(key, value)
        if len(value) > self.value_bytes_quick:
            self._ledger.weigh_sooner(len(value) // VALUE_STEP)

    def admit(self, key: bytes, value: bytes, revision: int) -> Relations | LooseKeys:
        """Admit a put of a key; return what is related to its table, made if need be.

        Raises:
            ComputedKeyError, BackedKeyError, LimitExceededError: The put is refused.
        """
        relations = self._directory.find(key)
        if relations is not None and relations.is_owned:
            self.refuse_owned(relations, key)
        # A refused put must not leave a table.
        self.make_room(key, value, revision)
        return relations or self._directory.at(key.partition(DELIMITER)[0])

    def make_room(self, key: bytes, value: bytes, revision: int) -> None:
        """Make sure that there is room for a put, if the ledger is due to be weighed.

        Raises:
            LimitExceededError: There is no room, even after eviction.
        """
        if revision >= self._ledger.weigh_at:
            self._memory.admit(revision, self._growth(key, value))

    def admit_all(self, keys: Sequence[bytes], values: Sequence[bytes], revision: int) -> list[RowRun]:
        """Admit many puts, all or none; return them table by table if the keys ascend, else one by one.

        Raises:
            InvalidKeyError, ComputedKeyError, BackedKeyError, LimitExceededError: One of them is refused.
            PequodError: No write is taken now; see `closed`.
        """
        if self.closed is not None:
            raise self.closed()
        for key, value in zip(keys, values, strict=True):
            if not 0 < len(key) <= self.key_bytes_max or len(value) > self.value_bytes_max:
                self._refuse_sizes(key, value)
        ascends = all(map(lt, keys, islice(keys, 1, None)))
        start = 0
        runs: list[RowRun] = []
        while start < len(keys):
            name, delimiter, _ = keys[start].partition(DELIMITER)
            stop = bisect_left(keys, name + _TABLE_END, start) if delimiter and ascends else start + 1
            runs.append(RowRun(name if delimiter else None, start, stop))
            relations = self._directory.by_name.get(name) if delimiter else None
            if relations is not None and relations.is_owned:
                for key in keys[start:stop]:
                    self.refuse_owned(relations, key)
            start = stop
        self._make_room_for_all(keys, values, revision)
        return runs

    def is_of_database(self, key: bytes, value: bytes) -> bool:
        """Return whether a database owns the key of a put; otherwise the put would be admitted.

        Raises:
            InvalidKeyError, LimitExceededError, ComputedKeyError: The put would be refused.
        """
        if not 0 < len(key) <= self.key_bytes_max or len(value) > self.value_bytes_max:
            self._refuse_sizes(key, value)
        name, delimiter, _ = key.partition(DELIMITER)
        relations = self._directory.by_name.get(name) if delimiter else None
        if relations is None:
            return False
        if relations.outputs:
            self.refuse_owned(relations, key)
        return relations.table.presence is not None and not relations.table.is_paged

    def refuse_range(self, first: bytes, last: bytes | None) -> None:
        """Refuse a range in which a database owns keys.

        Raises:
            BackedKeyError: A database owns some.
        """
        for table in self._store.backed:
            start, stop = table.clip(first, last)
            if start < stop and not table.is_paged:
                raise BackedKeyError(start)

    def refuse_owned(self, relations: Relations | LooseKeys, key: bytes) -> None:
        """Refuse a key that clients may not write.

        Raises:
            ComputedKeyError: An installed join computes it.
            BackedKeyError: A database owns it.
        """
        for join in relations.outputs:
            if join.match_output(key):
                raise ComputedKeyError(key, join.info.name)
        if relations.table.presence is not None and not relations.table.is_paged:
            raise BackedKeyError(key)

    def _make_room_for_all(self, keys: Sequence[bytes], values: Sequence[bytes], revision: int) -> None:
        if self._ledger.limit_bytes >= UNLIMITED:
            return
        growth_bytes = len(keys) * ROW + sum(map(len, keys)) + sum(map(len, values))
        if not self._memory.has_room(revision, growth_bytes):
            # Some rows may exist already.
            rows = dict(zip(keys, values, strict=True))
            self._memory.admit(revision, sum(self._growth(key, value) for key, value in rows.items()))
        # The last weighing did not foresee this many rows.
        self._ledger.weigh_next()

    def _growth(self, key: bytes, value: bytes) -> int:
        """Return the number of bytes by which a put makes the store grow."""
        old = self._store.get(key)
        return len(value) + (ROW + len(key) if old is None else -len(old))

    def _refuse_sizes(self, key: bytes, value: bytes) -> NoReturn:
        if not key:
            raise InvalidKeyError(key, "it is empty")
        if len(key) > self.key_bytes_max:
            raise LimitExceededError("key_bytes_max", len(key), self.key_bytes_max)
        raise LimitExceededError("value_bytes_max", len(value), self.value_bytes_max)
