"""The ledger: how many bytes everything in the engine takes, kept as things come and go (paper §2.5).

    client-written rows    counted by their tables, added up when the ledger is weighed; rows of backed tables alike
    computed rows          entries: two pointers each; what only their context holds: tails, values of aggregates
    contexts, status ranges, updaters, logs, aggregate states, watches

A value that many timelines show is one object: it is counted once, with the key that it was written to. The
sizes are measured, those of CPython 3.11 on 64 bits; tests/engine/test_memory.py compares them with what a
process really takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: A `bytes` object beside its bytes: 33, and half of what rounding up to 16 costs.
BYTES: Final = 41
#: An entry of rows: two pointers, and what lists keep in reserve.
ENTRY: Final = 17
#: A computed row beside its tail's bytes while it is computed: the tail, and its places in lists and a dictionary.
COMPUTING: Final = BYTES + 130
#: A client-written row: an entry, its key and its value.
ROW: Final = ENTRY + 2 * BYTES
#: A table without rows, and a group.
TABLE: Final = 2980
GROUP: Final = 330
#: A part of what is loaded of a backed table.
PART: Final = 560
#: A context with one status range and nothing in it, where it is looked for included; another range.
CONTEXT: Final = 1500
RANGE: Final = 260
#: What waits at one frame key, and each context that does; each of its extras.
UPDATERS: Final = 470
HOLD: Final = 48
EXTRAS: Final = 330
#: An entry of a log: its key is an object of its own.
LOG_ENTRY: Final = 170 + BYTES
#: A change that a watch keeps.
CHANGE: Final = 80 + 2 * BYTES

#: No limit: more than any machine has.
UNLIMITED: Final = 1 << 60


class Ledger:
    """Bytes by kind. Everyone may look at the numbers; only the verbs change them.

    Invariants:
        1. Every number but ``stored_bytes``, ``loaded_bytes`` and ``watch_bytes`` equals the sum over what is live.
        2. ``stored_bytes`` and ``loaded_bytes`` are as of the last weighing, less what was evicted since. It is
           due again when the engine's revision is ``weigh_at``.
    """

    __slots__ = (
        "context_count",
        "entry_count",
        "entry_count_max",
        "evictions",
        "limit_bytes",
        "loaded_bytes",
        "log_bytes",
        "part_count",
        "process_bytes",
        "process_limit_bytes",
        "range_count",
        "refusals",
        "row_bytes",
        "state_bytes",
        "stored_bytes",
        "updater_bytes",
        "watch_bytes",
        "weigh_at",
    )

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: What the whole process took when whoever holds it to a limit last looked, and that limit; 0: nobody does.
        self.process_bytes = 0
        self.process_limit_bytes = 0
        self.stored_bytes = 0
        #: What is loaded of backed tables, and in how many parts.
        self.loaded_bytes = 0
        self.part_count = 0
        #: Computed rows: how many, and what of their tails and values nobody else holds.
        self.entry_count = 0
        self.row_bytes = 0
        #: When fan-outs have made more entries, the next put is to weigh.
        self.entry_count_max = UNLIMITED
        self.context_count = 0
        self.range_count = 0
        self.state_bytes = 0
        self.log_bytes = 0
        #: What waits for changes, tails that fan-outs made included.
        self.updater_bytes = 0
        #: Changes kept for watches; whoever keeps them says so here.
        self.watch_bytes = 0
        self.weigh_at = UNLIMITED if limit_bytes >= UNLIMITED else 0
        #: Contexts and loaded parts evicted, with what had been computed from them; calls refused for want of memory.
        self.evictions = 0
        self.refusals = 0

    def change_rows(self, count: int, own_bytes: int) -> None:
        """Note that computed rows came or went, with the bytes of their tails and values that nothing else holds."""
        self.entry_count += count
        self.row_bytes += own_bytes

    def fan_out(self, count: int, tail_bytes: int) -> None:
        """Note that a write made computed rows, or took some, that share one tail with those who wait for them."""
        self.updater_bytes += tail_bytes
        self.entry_count += count
        if self.entry_count > self.entry_count_max:
            self.weigh_at = 0

    def change_contexts(self, count: int, range_count: int) -> None:
        """Note that contexts and status ranges came or went."""
        self.context_count += count
        self.range_count += range_count

    def change_states(self, grown_bytes: int) -> None:
        """Note that aggregate states grew or shrank."""
        self.state_bytes += grown_bytes

    def change_logs(self, grown_bytes: int) -> None:
        """Note that logs grew or shrank."""
        self.log_bytes += grown_bytes

    def change_updaters(self, grown_bytes: int) -> None:
        """Note that more or less waits for changes."""
        self.updater_bytes += grown_bytes

    def change_watches(self, grown_bytes: int) -> None:
        """Note that more or less is kept for watches; the one who keeps it says so."""
        self.watch_bytes += grown_bytes

    def change_parts(self, count: int) -> None:
        """Note that parts of what is loaded came or went."""
        self.part_count += count

    def unload(self, freed_bytes: int) -> None:
        """Note that loaded rows went."""
        self.loaded_bytes -= freed_bytes

    def limit(self, limit_bytes: int) -> None:
        """Set the limit; the next weighing goes by it."""
        self.limit_bytes = limit_bytes

    def note_process(self, process_bytes: int) -> None:
        """Note what the whole process takes."""
        self.process_bytes = process_bytes

    def limit_process(self, limit_bytes: int) -> None:
        """Note what the whole process may take."""
        self.process_limit_bytes = limit_bytes

    def weigh(self, stored_bytes: int, loaded_bytes: int) -> None:
        """Note what the client-written and the loaded rows take."""
        self.stored_bytes, self.loaded_bytes = stored_bytes, loaded_bytes

    def weigh_again(self, revision: int, room_bytes: int) -> None:
        """Say when the rows are to be weighed again: at a revision, or when computed rows take so much more."""
        self.weigh_at = revision
        self.entry_count_max = self.entry_count + room_bytes // ENTRY

    def weigh_sooner(self, revisions: int) -> None:
        """Let the next weighing be so many revisions sooner: a large value counts as many."""
        self.weigh_at -= revisions

    def weigh_next(self) -> None:
        """Let the next put weigh."""
        self.weigh_at = 0

    def count_evictions(self, count: int) -> None:
        """Count what went to make room."""
        self.evictions += count

    def count_refusal(self) -> None:
        """Count a call that was refused for want of memory."""
        self.refusals += 1

    @property
    def computed_bytes(self) -> int:
        """All that is computed."""
        return (
            self.entry_count * ENTRY
            + self.context_count * CONTEXT
            + self.range_count * RANGE
            + self.row_bytes
            + self.state_bytes
            + self.log_bytes
            + self.updater_bytes
        )

    @property
    def evictable_count(self) -> int:
        """How many things there are that may go, pinned ones included."""
        return self.context_count + self.part_count

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return self.stored_bytes + self.loaded_bytes + self.computed_bytes + self.watch_bytes


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """What the engine takes, in bytes by kind; estimated, but for the limit and the counters."""

    #: 0: none.
    limit_bytes: int = 0
    total_bytes: int = 0
    #: Client-written keys and values, with their tables and groups.
    stored_bytes: int = 0
    #: Computed rows; values that they share with what they were copied from are counted there.
    row_bytes: int = 0
    context_bytes: int = 0
    updater_bytes: int = 0
    log_bytes: int = 0
    state_bytes: int = 0
    watch_bytes: int = 0
    #: What is loaded of the database's tables.
    loaded_bytes: int = 0
    #: Contexts and loaded parts that went to make room, and calls that were refused because there was none.
    evictions: int = 0
    refusals: int = 0
    #: What the process took a moment ago, and what it may take; 0: nobody holds it to a limit. The limit of the data
    #: is what that leaves beside everything else that the process has.
    process_bytes: int = 0
    process_limit_bytes: int = 0
