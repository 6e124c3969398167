"""The ledger: the bytes that everything in the engine takes, kept as data come and go (paper §2.5).

    client-written rows    counted by their tables, added up when the ledger is weighed; rows of backed tables alike
    computed rows          entries: two pointers each; tails and values of aggregates that only their context holds;
                           tails that rows of several contexts share, each of them once
    contexts, status ranges, updaters, logs, aggregate states, watches

A value that many timelines share is one object: it is counted once, with the key that it was written to. The sizes were
measured in CPython 3.11 on 64 bits, where some differ with the native core;
tests/engine/test_memory.py compares them with the size of a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pequod.native import core

_IS_NATIVE: Final = core is not None
#: A `bytes` object without its bytes: 33, and half of the loss by rounding up to 16.
BYTES: Final = 41
#: An entry of rows: two pointers, and the reserve of the lists.
ENTRY: Final = 17
#: A tail that rows share, with its place among these, without its bytes.
SHARED_TAIL: Final = BYTES + (30 if _IS_NATIVE else 180)
#: A computed row without its tail's bytes while it is computed: the tail, and its places in lists and a dictionary.
COMPUTING: Final = BYTES + 130
#: A client-written row: an entry, its key and its value.
ROW: Final = ENTRY + 2 * BYTES
#: A table without rows, and a group.
TABLE: Final = 3400 if _IS_NATIVE else 3650
GROUP: Final = 150 if _IS_NATIVE else 330
#: A loaded part of a backed table, with what says when it was used.
PART: Final = 640
#: A context with one status range and no rows, with its places in dictionaries; a further status range.
CONTEXT: Final = 1100 if _IS_NATIVE else 1440
RANGE: Final = 260
#: What a context has more if `keep` leaves some rows alone: what it knows of its groups, and the spare rows of one.
CAPPED: Final = 480 if _IS_NATIVE else 600
#: A frame key with its updaters, and each context among them; each of its extras.
UPDATERS: Final = 470
HOLD: Final = 48
#: The same of native frames.
NATIVE_UPDATERS: Final = 155
NATIVE_HOLD: Final = 9
#: A native frame's place in the order, where a database owns the source.
NATIVE_PLACE: Final = 75
EXTRAS: Final = 330
#: An entry of a log: its key is a separate object.
LOG_ENTRY: Final = 170 + BYTES
#: A change that a watch keeps.
CHANGE: Final = 80 + 2 * BYTES

#: No limit: more than any machine has.
UNLIMITED: Final = 1 << 60


class HotLedger:
    """The numbers that most writes change, and how they do."""

    __slots__ = (
        "entry_count",
        "entry_count_max",
        "index_bytes",
        "index_count",
        "log_bytes",
        "row_bytes",
        "updater_bytes",
        "weigh_at",
    )

    entry_count: int
    entry_count_max: int
    index_bytes: int
    index_count: int
    log_bytes: int
    row_bytes: int
    updater_bytes: int
    weigh_at: int

    def change_rows(self, count: int, own_bytes: int) -> None:
        """Note that computed rows came or went, with the bytes of tails and values that only they hold."""
        self.entry_count += count
        self.row_bytes += own_bytes

    def fan_out(self, count: int, tail_bytes: int) -> None:
        """Note that a write made or removed computed rows, whose tail they share with the updaters."""
        self.updater_bytes += tail_bytes
        self.entry_count += count
        if self.entry_count > self.entry_count_max:
            self.weigh_at = 0

    def change_logs(self, grown_bytes: int) -> None:
        """Note that logs grew or shrank."""
        self.log_bytes += grown_bytes

    def change_indexes(self, count: int, grown_bytes: int) -> None:
        """Note that indexes over records came or went, grew or shrank."""
        self.index_count += count
        self.index_bytes += grown_bytes

    def change_updaters(self, grown_bytes: int) -> None:
        """Note that updaters came or went."""
        self.updater_bytes += grown_bytes


if not TYPE_CHECKING and core is not None:
    HotLedger = core.HotLedger
    core.use_sizes(ENTRY, BYTES, LOG_ENTRY, TABLE, GROUP, ROW)


class Ledger(HotLedger):
    """Bytes by kind. All code may read the numbers; only the methods of the ledger change them.

    Where the core is, those of `HotLedger` are its own (pequod/native/state.cpp), by which its writes change them too.

    Invariants:
        1. Every number but ``stored_bytes``, ``loaded_bytes`` and ``watch_bytes`` equals the sum over all live data.
        2. ``stored_bytes`` and ``loaded_bytes`` are those of the last weighing, less the bytes evicted since. The next
           weighing is due when the engine's revision is ``weigh_at``.
    """

    __slots__ = (
        "capped_count",
        "context_count",
        "evictions",
        "limit_bytes",
        "loaded_bytes",
        "part_count",
        "process_bytes",
        "process_limit_bytes",
        "range_count",
        "refusals",
        "state_bytes",
        "stored_bytes",
        "tail_bytes",
        "tail_count",
        "watch_bytes",
    )

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: The size of the process at the last look, and its limit; 0: the process has no limit.
        self.process_bytes = 0
        self.process_limit_bytes = 0
        self.stored_bytes = 0
        #: Loaded rows of backed tables, and the number of parts.
        self.loaded_bytes = 0
        self.part_count = 0
        #: Computed rows: their number, and the bytes of tails and values that only they hold.
        self.entry_count = 0
        self.row_bytes = 0
        #: Tails that rows share: their number, and their bytes.
        self.tail_count = 0
        self.tail_bytes = 0
        #: When fan-outs have made more entries than this, the next put weighs.
        self.entry_count_max = UNLIMITED
        self.context_count = 0
        #: Of these, how many keep some rows of each group alone.
        self.capped_count = 0
        self.range_count = 0
        self.state_bytes = 0
        #: The rows of indexes over records, and the number of indexes.
        self.index_bytes = 0
        self.index_count = 0
        self.log_bytes = 0
        #: Updaters, and the tails that fan-outs made for them.
        self.updater_bytes = 0
        #: Changes kept for watches; the code that keeps them reports them here.
        self.watch_bytes = 0
        self.weigh_at = UNLIMITED if limit_bytes >= UNLIMITED else 0
        #: Contexts and loaded parts that were evicted, with their dependants; calls refused because memory was short.
        self.evictions = 0
        self.refusals = 0

    def change_contexts(self, count: int, range_count: int, capped_count: int = 0) -> None:
        """Note that contexts and status ranges came or went, and how many of the former keep some rows alone."""
        self.context_count += count
        self.range_count += range_count
        self.capped_count += capped_count

    def change_tails(self, count: int, grown_bytes: int) -> None:
        """Note that tails that rows share came or went, with their bytes."""
        self.tail_count += count
        self.tail_bytes += grown_bytes

    def change_states(self, grown_bytes: int) -> None:
        """Note that aggregate states grew or shrank."""
        self.state_bytes += grown_bytes

    def change_watches(self, grown_bytes: int) -> None:
        """Note that changes for watches came or went; the code that keeps them calls this."""
        self.watch_bytes += grown_bytes

    def change_parts(self, count: int) -> None:
        """Note that parts of the loaded rows came or went."""
        self.part_count += count

    def forget_rows(self, freed_bytes: int) -> None:
        """Note that loaded rows went."""
        self.loaded_bytes -= freed_bytes

    def limit(self, limit_bytes: int) -> None:
        """Set the limit; it holds from the next weighing on."""
        self.limit_bytes = limit_bytes

    def note_process(self, process_bytes: int) -> None:
        """Note the size of the process."""
        self.process_bytes = process_bytes

    def limit_process(self, limit_bytes: int) -> None:
        """Note the limit of the process."""
        self.process_limit_bytes = limit_bytes

    def weigh(self, stored_bytes: int, loaded_bytes: int) -> None:
        """Note the memory of the client-written and the loaded rows."""
        self.stored_bytes, self.loaded_bytes = stored_bytes, loaded_bytes

    def weigh_again(self, revision: int, room_bytes: int) -> None:
        """Set when the rows are weighed again: at a revision, or when the computed rows have grown this much."""
        self.weigh_at = revision
        self.entry_count_max = self.entry_count + room_bytes // ENTRY

    def weigh_sooner(self, revisions: int) -> None:
        """Bring the next weighing forward by some revisions: a large value counts as many."""
        self.weigh_at -= revisions

    def weigh_next(self) -> None:
        """Have the next put weigh."""
        self.weigh_at = 0

    def count_evictions(self, count: int) -> None:
        """Count evicted contexts and loaded parts."""
        self.evictions += count

    def count_refusal(self) -> None:
        """Count a call that was refused because memory was short."""
        self.refusals += 1

    @property
    def shared_bytes(self) -> int:
        """The bytes of the tails that rows share."""
        return self.tail_count * SHARED_TAIL + self.tail_bytes

    @property
    def context_bytes(self) -> int:
        """The bytes of contexts and of their ranges, without what they have for each row."""
        return self.context_count * CONTEXT + self.capped_count * CAPPED + self.range_count * RANGE

    @property
    def computed_bytes(self) -> int:
        """The bytes of everything that is computed."""
        return (
            self.entry_count * ENTRY
            + self.context_bytes
            + self.row_bytes
            + self.shared_bytes
            + self.state_bytes
            + self.index_bytes
            + self.log_bytes
            + self.updater_bytes
        )

    @property
    def evictable_count(self) -> int:
        """The number of things that may be evicted, pinned ones included."""
        return self.context_count + self.part_count + self.index_count

    @property
    def total_bytes(self) -> int:
        """The bytes of everything."""
        return self.stored_bytes + self.loaded_bytes + self.computed_bytes + self.watch_bytes
