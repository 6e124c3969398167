"""What is evicted when memory is short: the least recently used first, in whole ranges (paper §2.5).

    heap of tickets     (priority, last use when it was written) -> thing
                          pop the least: used since? write a new ticket. Held? put it aside. Else it is evicted.

A use does not write a ticket, so that it costs nothing. The order is exact all the same, since a ticket can only be too
old. Each rewritten ticket stands for a use since the last look, so an eviction costs O(log n).

A thing is data that can be made again: a context, which is computed, or a part of the loaded rows of a database. This
module only chooses which one is evicted; the engine, which knows what they are, drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

from pequod.engine.memory.ledger import COMPUTING, GROUP, TABLE, UNLIMITED, Ledger
from pequod.engine.read import Read, Reads
from pequod.language.errors import LimitExceededError

#: Eviction goes on until this share of the limit is free, or this many bytes, so that it does not run all the time.
_FREE_SHARE: Final = 1 / 32
_FREE_BYTES_MAX: Final = 4 << 20
#: The largest share of the limit for client-written keys: reads need room for computed rows.
_STORED_SHARE: Final = 0.9
#: A put of a value up to this size counts as one revision until the next weighing, a larger one as more.
VALUE_STEP: Final = 4096
#: Things that were used since their last look, and that one eviction looks at before it takes the best: some ms.
#: Tests make it small.
LOOKS_MAX = 128
#: A read that lacked data is waited for during this many other reads, unless it came back.
WAIT_READS: Final = 1000
#: The rank of a thing that may not be evicted.
HELD: Final = None
#: The priority of a thing that is never evicted.
PINNED: Final = 1 << 30

#: (priority, last use, kind: 0 computed, 1 loaded): lower ranks are evicted first.
Rank = tuple[int, int, int]


def _nothing() -> bool:
    return False


class Evictable(Protocol):
    """A thing that can be made again and may be evicted when memory is short."""

    ticket: Ticket | None

    def rank(self) -> Rank | None:
        """Return its place in the order of eviction, with its dependants in mind; None: it may not be evicted now."""


class Weighable(Protocol):
    """The store of the client-written and loaded rows."""

    @property
    def table_count(self) -> int:
        """The number of tables: the time of a weighing grows with it."""

    def count_bytes(self) -> tuple[int, int]:
        """Return the memory of the client-written rows, and of the loaded ones."""


class Ticket:
    """The place of a thing in the order of eviction, as of some time."""

    __slots__ = ("rank", "thing")

    def __init__(self, rank: Rank, thing: Evictable) -> None:
        self.rank = rank
        #: None: the thing is gone, and the heap must not keep it alive.
        self.thing: Evictable | None = thing

    def __lt__(self, other: Ticket) -> bool:
        return self.rank < other.rank


class Evictor:
    """Keeps memory within its limit: weighs the store, evicts, refuses.

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
        "free_bytes_max",
        "ledger",
        "page_more",
        "reads",
    )

    def __init__(
        self, ledger: Ledger, store: Weighable, key_bytes_max: int, reads: Reads, drop: Callable[[Evictable], None]
    ) -> None:
        self.ledger = ledger
        #: Drops a thing, with its dependants.
        self._drop = drop
        #: Data that a read with this number or a later one used stays.
        self.reads = reads
        #: Numbers of reads that lacked data and will be repeated.
        self._waiting: dict[int, None] = {}
        self._store = store
        self._heap: list[Ticket] = []
        self._gone = 0
        #: Attempts to skip, after one that freed too little although it examined many things.
        self._patience = 0
        #: The revision of the last weighing.
        self._weighed_at = 0
        #: The most that one eviction frees.
        self.free_bytes_max = _FREE_BYTES_MAX
        #: Lets rows be evicted of a table whose rows were not to be, since they are elsewhere, too; returns whether
        #: there was such a table.
        self.page_more: Callable[[], bool] = _nothing
        self._put_bytes_max = key_bytes_max + VALUE_STEP + TABLE + GROUP

    def enter(self, thing: Evictable, rank: Rank) -> None:
        """Add a thing that may be evicted."""
        thing.ticket = Ticket(rank, thing)
        heappush(self._heap, thing.ticket)

    def leave(self, thing: Evictable) -> None:
        """Remove a thing that is gone.

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

    def room_for(self, tails: list[bytes], more: int) -> int:
        """Make room for contributions to rows with these tails; return how many there may be before the next call.

        Args:
            more: How many more there may be where memory is limited.

        Raises:
            LimitExceededError: There is no room, even after eviction.
        """
        if self.ledger.limit_bytes >= UNLIMITED:
            return UNLIMITED
        self.hold(len(tails) * (COMPUTING + len(tails[-1])))
        return len(tails) + more

    def wait(self, read: Read) -> None:
        """Note that a read lacks data, and will be repeated once they are loaded.

        Data that were loaded for it stay meanwhile. Otherwise two reads that together need more than the memory would
        evict each other's data, and neither would end.
        """
        self._waiting[read.number] = None
        while (oldest := next(iter(self._waiting))) < read.number - WAIT_READS:
            del self._waiting[oldest]

    def last_needed(self, last_used: int) -> int:
        """Return the number of the last read that needs data which was last used at ``last_used``."""
        return last_used + WAIT_READS if last_used in self._waiting else last_used

    def evict(self, is_enough: Callable[[], bool]) -> None:
        """Have things dropped until enough is free, or nothing is left that may be evicted."""
        for victim in self.choose(is_enough):
            self._drop(victim)

    def evict_some(self, count: int) -> int:
        """Have ``count`` things dropped, or a few more; return their number."""
        ledger = self.ledger
        before = ledger.evictable_count
        self.evict(lambda: before - ledger.evictable_count >= count)
        return before - ledger.evictable_count

    def choose(self, is_enough: Callable[[], bool]) -> Iterator[Evictable]:
        """Yield the victims, the least recently used first, until enough is free.

        Requires:
            The caller drops each one before it asks for the next.

        Cost:
            O(log n) for each victim, and for each thing that was used since its last look: at most `LOOKS_MAX` of them
            for as many victims, whatever the number of things. So after long rest the victims are the least recently
            used of those alone that were the least recently used when each had its last look.
        """
        aside, looked = list[Ticket](), list[Ticket]()
        latest = self.reads.number
        while self._heap and not is_enough():
            if len(looked) >= LOOKS_MAX:
                for ticket in sorted(looked):
                    # What others have taken along is gone; nobody has used the rest meanwhile.
                    if ticket.thing is not None:
                        yield ticket.thing
                        if is_enough():
                            break
                looked.clear()
                continue
            ticket = heappop(self._heap)
            thing = ticket.thing
            if thing is None:
                self._gone -= 1
                continue
            rank = thing.rank()
            if rank is HELD:
                # To be held counts as a use.
                ticket.rank = (ticket.rank[0], latest, ticket.rank[2])
                aside.append(ticket)
            elif rank[1] >= latest:
                ticket.rank = (rank[0], latest, rank[2])
                aside.append(ticket)
            elif rank != ticket.rank:
                ticket.rank = rank
                heappush(self._heap, ticket)
                looked.append(ticket)
            else:
                heappush(self._heap, ticket)
                yield thing
        for ticket in aside:
            heappush(self._heap, ticket)
        self._patience = 0 if is_enough() else len(aside) // 16

    def make_room(self, spare_bytes: int = 0) -> bool:
        """Evict if the limit is exceeded; return whether it is held now, with ``spare_bytes`` to spare."""
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
        """The number of bytes that one eviction frees."""
        return min(int(self.ledger.limit_bytes * _FREE_SHARE), self.free_bytes_max)

    def shrink(self, goal_bytes: int) -> None:
        """Evict until everything takes at most ``goal_bytes``."""
        ledger = self.ledger
        before = ledger.evictable_count
        self.evict(lambda: ledger.total_bytes <= goal_bytes)
        ledger.count_evictions(before - ledger.evictable_count)

    def shrink_by(self, thing: Evictable) -> None:
        """Evict a thing."""
        before = self.ledger.evictable_count
        self._drop(thing)
        self.ledger.count_evictions(before - self.ledger.evictable_count)

    def shrink_some(self, goal_bytes: int, step_bytes: int) -> bool:
        """Evict ``step_bytes`` or a little more; return whether the goal is not reached and more can be evicted."""
        ledger = self.ledger
        before_bytes = ledger.total_bytes
        self.shrink(max(goal_bytes, before_bytes - step_bytes))
        return goal_bytes < ledger.total_bytes <= before_bytes - step_bytes

    def weigh(self, revision: int) -> None:
        """Count the client-written rows, and set when that is due again.

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
        """Count the client-written rows if they have changed, and by enough to be worth the time."""
        if revision - self._weighed_at > self._store.table_count // 4:
            self.weigh(revision)

    def has_room(self, revision: int, grows_bytes: int) -> bool:
        """Return whether the store may grow by ``grows_bytes`` without eviction."""
        self.weigh(revision)
        ledger = self.ledger
        stored_bytes = ledger.stored_bytes + grows_bytes
        return stored_bytes <= ledger.limit_bytes * _STORED_SHARE and (
            ledger.total_bytes + grows_bytes <= ledger.limit_bytes
        )

    def admit(self, revision: int, grows_bytes: int) -> None:
        """Make sure that there is room for a put, which makes the store grow by ``grows_bytes``.

        Raises:
            LimitExceededError: There is no room, even after everything else was evicted.
        """
        self.weigh(revision)
        if grows_bytes <= 0:
            return
        ledger = self.ledger
        stored_bytes_max = int(ledger.limit_bytes * _STORED_SHARE)
        while ledger.stored_bytes + grows_bytes > stored_bytes_max and self.page_more():
            self.weigh(revision)
        needed_bytes = ledger.stored_bytes + grows_bytes
        if needed_bytes <= stored_bytes_max:
            self.reads.begin()
            if self.make_room(grows_bytes):
                return
            needed_bytes = ledger.total_bytes + grows_bytes
        ledger.weigh_next()
        ledger.count_refusal()
        raise self.refusal(max(needed_bytes, ledger.limit_bytes + 1))

    def refuse_beyond(self, needed_bytes: int) -> None:
        """Refuse a request that would not fit beside the client-written rows, before anything is evicted for it.

        Raises:
            LimitExceededError: It would not fit.
        """
        ledger = self.ledger
        if ledger.stored_bytes + needed_bytes > ledger.limit_bytes:
            ledger.count_refusal()
            raise self.refusal(ledger.stored_bytes + needed_bytes)

    def hold(self, spare_bytes: int = 0, made: Evictable | None = None) -> None:
        """Make sure that the rows that a read has computed so far fit, with its other needs.

        Args:
            spare_bytes: Its other needs.
            made: What holds these rows. A refusal drops it first, since all that it depends on counts as used while it
                is there, and leaves room for the read to make it again.

        Raises:
            LimitExceededError: They do not fit, even after everything else was evicted.
        """
        self.refuse_beyond(spare_bytes)
        was_patient = self._patience > 0
        has_room = self.make_room(spare_bytes)
        if was_patient and not has_room:
            # Nothing was tried: what could not be evicted before may be evicted by now.
            self._patience = 0
            has_room = self.make_room(spare_bytes)
        if not has_room:
            ledger = self.ledger
            ledger.count_refusal()
            needed_bytes = ledger.total_bytes + spare_bytes
            # The data that the read has used need not stay: the read ends here, also if it has waited for them before.
            self._waiting.clear()
            self.reads.begin()
            if made is not None and made.ticket is not None:
                self.shrink_by(made)
            again_bytes = needed_bytes - ledger.total_bytes
            self.shrink(ledger.limit_bytes - self.free_bytes - again_bytes)
            raise self.refusal(needed_bytes)

    def refusal(self, needed_bytes: int) -> LimitExceededError:
        """Return the error, which names the process's limit if there is one."""
        ledger = self.ledger
        beside_bytes = max(ledger.process_limit_bytes - ledger.limit_bytes, 0)
        return LimitExceededError("memory_limit", needed_bytes + beside_bytes, ledger.limit_bytes + beside_bytes)

    def _check(self) -> None:
        assert sum(ticket.thing is None for ticket in self._heap) == self._gone
        for ticket in self._heap:
            if ticket.thing is not None:
                assert ticket.thing.ticket is ticket, "invariant 1"
