"""Who has to go when memory is short: the least recently used first, in whole ranges (paper §2.5).

    heap of tickets     (priority, last use when it was written) -> thing
                          pop the least: used since? write a new ticket. Held? put it aside. Else it goes.

A ticket is not touched when its thing is used, so that a use costs nothing; the order is exact all the same, since a
ticket can only be too old. Each ticket that is rewritten answers for a use since, so an eviction costs O(log n).

A thing is what can be made again: a context, which is computed, or a part of what is loaded of a database. Here is only
chosen which of them goes; the engine, which knows what they are, drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from pequod.engine.memory.ledger import GROUP, TABLE, UNLIMITED, Ledger
from pequod.engine.read import Read, Reads
from pequod.language.errors import LimitExceededError

#: Evicting goes on until this share of the limit is free, or so many bytes, so that it is not at work all the time.
_FREE_SHARE: Final = 1 / 32
_FREE_BYTES_MAX: Final = 4 << 20
#: Client-written keys fill up this share of the limit: reads need room for what they compute.
_STORED_SHARE: Final = 0.9
#: Puts of values up to this count as one revision each until the next weighing, larger ones as more.
VALUE_STEP: Final = 4096
#: For so many reads a read that lacked something is waited for, unless it came back.
WAIT_READS: Final = 1000
#: The rank of what may not go.
HELD: Final = None
#: Priority of what never goes.
PINNED: Final = 1 << 30

#: (priority, last use, what goes first of equals: 0 computed, 1 loaded): the lower ones go first.
Rank = tuple[int, int, int]


class Evictable(Protocol):
    """A thing that can be made again and may go when memory is short."""

    ticket: Ticket | None

    def rank(self) -> Rank | None:
        """Return its place in the order of going, with regard to what would go along; None: it may not go now."""


class Weighable(Protocol):
    """What client-written and loaded rows are kept in."""

    @property
    def table_count(self) -> int:
        """How many tables there are: weighing takes as long as these."""

    def count_bytes(self) -> tuple[int, int]:
        """Return what the client-written rows take, and the loaded ones."""


class Ticket:
    """The place of a thing in the order of going, as of some time."""

    __slots__ = ("rank", "thing")

    def __init__(self, rank: Rank, thing: Evictable) -> None:
        self.rank = rank
        #: None: it is gone. The heap is not to keep it alive.
        self.thing: Evictable | None = thing

    def __lt__(self, other: Ticket) -> bool:
        return self.rank < other.rank


class Memory:
    """Holds the limit: weighs the store, evicts, refuses.

    Invariants:
        1. Every thing that entered and has not left has one ticket, whose rank is not above its own.
    """

    __slots__ = (
        "_drop",
        "_gone",
        "_heap",
        "_patience",
        "_put_bytes_max",
        "_store",
        "_waiting",
        "_weighed_at",
        "ledger",
        "reads",
    )

    def __init__(
        self, ledger: Ledger, store: Weighable, key_bytes_max: int, reads: Reads, drop: Callable[[Evictable], None]
    ) -> None:
        self.ledger = ledger
        #: Drops a thing, with what depends on it.
        self._drop = drop
        #: What was used at the latest of these stays.
        self.reads = reads
        #: Numbers of reads that lacked something and will be tried again.
        self._waiting: dict[int, None] = {}
        self._store = store
        self._heap: list[Ticket] = []
        self._gone = 0
        #: Attempts to let pass, after one that found too little although it looked at much.
        self._patience = 0
        #: The revision of the last weighing.
        self._weighed_at = 0
        self._put_bytes_max = key_bytes_max + VALUE_STEP + TABLE + GROUP

    def enter(self, thing: Evictable, rank: Rank) -> None:
        """Take in a thing that may go."""
        thing.ticket = Ticket(rank, thing)
        heappush(self._heap, thing.ticket)

    def leave(self, thing: Evictable) -> None:
        """Forget a thing that is gone.

        Cost:
            O(1) amortised.
        """
        if thing.ticket is None:
            return
        thing.ticket.thing = None
        thing.ticket = None
        self._gone += 1
        if self._gone > 16 + len(self._heap) // 2:
            self._heap = [ticket for ticket in self._heap if ticket.thing is not None]
            heapify(self._heap)
            self._gone = 0

    def wait(self, read: Read) -> None:
        """Note that a read lacks something, and will be tried again once that is loaded.

        What was loaded for it stays meanwhile: reads that together need more than there is would else take turns in
        loading, and none would come to its end.
        """
        self._waiting[read.number] = None
        while (oldest := next(iter(self._waiting))) < read.number - WAIT_READS:
            del self._waiting[oldest]

    def last_needed(self, last_used: int) -> int:
        """Return until which read something is needed that was used at a read."""
        return last_used + WAIT_READS if last_used in self._waiting else last_used

    def evict(self, is_enough: Callable[[], bool]) -> None:
        """Have things dropped until that is enough, or nothing is left that may go."""
        for victim in self.choose(is_enough):
            self._drop(victim)

    def evict_some(self, count: int) -> int:
        """Have ``count`` things dropped, or a few more; return how many went."""
        ledger = self.ledger
        before = ledger.evictable_count
        self.evict(lambda: before - ledger.evictable_count >= count)
        return before - ledger.evictable_count

    def choose(self, is_enough: Callable[[], bool]) -> Iterator[Evictable]:
        """Yield what is to go, the least recently used first, until that is enough.

        Requires:
            Each is dropped before the next is asked for.

        Cost:
            O(log n) for each thing that goes or was used since its last look.
        """
        aside = []
        latest = self.reads.number
        while self._heap and not is_enough():
            ticket = heappop(self._heap)
            thing = ticket.thing
            if thing is None:
                self._gone -= 1
                continue
            rank = thing.rank()
            if rank is HELD:
                # Being held is a use.
                ticket.rank = (ticket.rank[0], latest, ticket.rank[2])
                aside.append(ticket)
            elif rank[1] >= latest:
                ticket.rank = (rank[0], latest, rank[2])
                aside.append(ticket)
            elif rank != ticket.rank:
                ticket.rank = rank
                heappush(self._heap, ticket)
            else:
                heappush(self._heap, ticket)
                yield thing
        for ticket in aside:
            heappush(self._heap, ticket)
        self._patience = 0 if is_enough() else len(aside) // 16

    def make_room(self, spare_bytes: int = 0) -> bool:
        """Evict if the limit is passed; tell whether it is held now, with so many bytes to spare."""
        ledger = self.ledger
        if ledger.limit_bytes >= UNLIMITED or ledger.total_bytes + spare_bytes <= ledger.limit_bytes:
            return True
        if self._patience > 0:
            self._patience -= 1
            return False
        self.shrink(ledger.limit_bytes - spare_bytes - self.free_bytes)
        return ledger.total_bytes + spare_bytes <= ledger.limit_bytes

    @property
    def free_bytes(self) -> int:
        """How much is made free at a time."""
        return min(int(self.ledger.limit_bytes * _FREE_SHARE), _FREE_BYTES_MAX)

    def shrink(self, goal_bytes: int) -> None:
        """Evict until everything takes no more than so much."""
        ledger = self.ledger
        before = ledger.evictable_count
        self.evict(lambda: ledger.total_bytes <= goal_bytes)
        ledger.count_evictions(before - ledger.evictable_count)

    def shrink_some(self, goal_bytes: int, step_bytes: int) -> bool:
        """Evict ``step_bytes`` or a little more towards a goal; tell whether it is not reached, and more would go."""
        ledger = self.ledger
        before_bytes = ledger.total_bytes
        self.shrink(max(goal_bytes, before_bytes - step_bytes))
        return goal_bytes < ledger.total_bytes <= before_bytes - step_bytes

    def weigh(self, revision: int) -> None:
        """Count the client-written rows, and say when that is due again.

        Cost:
            O(tables), at most once in a quarter as many puts.
        """
        ledger = self.ledger
        self._weighed_at = revision
        ledger.weigh(*self._store.count_bytes())
        if ledger.limit_bytes < UNLIMITED:
            room = min(ledger.limit_bytes - ledger.total_bytes, ledger.limit_bytes // 32)
            revisions = max(room // self._put_bytes_max, self._store.table_count // 4, 1)
            ledger.weigh_again(revision + revisions, max(room, 0))

    def weigh_again(self, revision: int) -> None:
        """Count them if something changed since, and as much as makes that worth while."""
        if revision - self._weighed_at > self._store.table_count // 4:
            self.weigh(revision)

    def has_room(self, revision: int, grows_bytes: int) -> bool:
        """Tell whether the store may grow by so much with nothing evicted."""
        self.weigh(revision)
        ledger = self.ledger
        stored_bytes = ledger.stored_bytes + grows_bytes
        return stored_bytes <= ledger.limit_bytes * _STORED_SHARE and (
            ledger.total_bytes + grows_bytes <= ledger.limit_bytes
        )

    def admit(self, revision: int, grows_bytes: int) -> None:
        """Make sure that there is room for a put, which makes the store grow by so much.

        Raises:
            LimitExceededError: There is none, whatever goes.
        """
        self.weigh(revision)
        if grows_bytes <= 0:
            return
        ledger = self.ledger
        stored_bytes_max = int(ledger.limit_bytes * _STORED_SHARE)
        needed_bytes = ledger.stored_bytes + grows_bytes
        if needed_bytes <= stored_bytes_max:
            self.reads.begin()
            if self.make_room(grows_bytes):
                return
            needed_bytes = ledger.total_bytes + grows_bytes
        ledger.weigh_next()
        ledger.count_refusal()
        raise self._refusal(max(needed_bytes, ledger.limit_bytes + 1))

    def refuse_beyond(self, needed_bytes: int) -> None:
        """Refuse what would not fit beside the client-written rows if everything else went, before anything goes.

        Raises:
            LimitExceededError: It would not.
        """
        ledger = self.ledger
        if ledger.stored_bytes + needed_bytes > ledger.limit_bytes:
            ledger.count_refusal()
            raise self._refusal(ledger.stored_bytes + needed_bytes)

    def hold(self, spare_bytes: int = 0) -> None:
        """Make sure that what a read has computed so far fits, with so many bytes that it needs beside.

        Raises:
            LimitExceededError: It does not, even with everything else gone. Now it has gone as well.
        """
        self.refuse_beyond(spare_bytes)
        if not self.make_room(spare_bytes):
            ledger = self.ledger
            ledger.count_refusal()
            needed_bytes = ledger.total_bytes + spare_bytes
            # What the read has used need not stay: it ends here.
            self.reads.begin()
            self.shrink(ledger.limit_bytes - self.free_bytes)
            raise self._refusal(needed_bytes)

    def _refusal(self, needed_bytes: int) -> LimitExceededError:
        """Return the error, in terms of the process if that is what the limit is for."""
        ledger = self.ledger
        beside_bytes = max(ledger.process_limit_bytes - ledger.limit_bytes, 0)
        return LimitExceededError("memory_limit", needed_bytes + beside_bytes, ledger.limit_bytes + beside_bytes)

    def _check(self) -> None:
        assert sum(ticket.thing is None for ticket in self._heap) == self._gone
        for ticket in self._heap:
            if ticket.thing is not None:
                assert ticket.thing.ticket is ticket, "invariant 1"
