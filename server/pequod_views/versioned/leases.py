"""Leases: base records are shared out by a hash of their keys, and one process at a time has a share.

    register "share 7"    epoch, beat, holder, wanted        compared and set by the store, see `registers`

    holder     renews: another beat, four times in the time of a lease
    another    asks: wanted = its name; the holder hands the share over once its propagations of now are done
               takes: epoch + 1, when nobody holds it, or the same beat has been there for the time of a lease

A holder counts the time from before it asks the store, and another one from after it looked; so no two hold a share at
once, as long as their clocks run at the same speed, to a tenth. A process that was paused sees by its clock that its
lease ran out: before each request, and after the last. So a holder that lost its share is to the next as one that died
with one message under way, and stamps are for that, see `turns`.

>>> LeaseText.of(LeaseText(4096, 2, "ann", "").text)
LeaseText(epoch=4096, beat=2, holder='ann', wanted='')
"""

from __future__ import annotations

import asyncio
import time
import uuid
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from pequod.errors import SettingError
from pequod_views.versioned.known import KnownRows
from pequod_views.versioned.locks import RowLocks
from pequod_views.versioned.records import QuorumError, RecordStore
from pequod_views.versioned.replicas import refuse_duration
from pequod_views.versioned.turns import EPOCH_FIRST, LeaseLostError, Turn, TurnStamps

#: All processes over a store have to have the same.
_SHARES: Final = 64
SHARES_MAX: Final = 65_536
_LEASE_S: Final = 2.0
#: With less, a lease runs out while its holder waits for a turn of the processor.
LEASE_S_MIN: Final = 0.05
#: Of the time of a lease: what clocks may differ in speed.
_DRIFT: Final = 0.1
_BEATS: Final = 4
_NEVER: Final = float("-inf")


class LeaseText(NamedTuple):
    """What a register says of a share."""

    epoch: int
    beat: int
    #: Empty: nobody.
    holder: str
    #: The process that gets it next; empty: nobody.
    wanted: str

    @property
    def text(self) -> str:
        """The value of the register."""
        return f"{self.epoch} {self.beat} {self.holder} {self.wanted}"

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what the value of a register says."""
        epoch, beat, holder, wanted = text.split(" ")
        return cls(int(epoch), int(beat), holder, wanted)


@dataclass(slots=True)
class _Held:
    """A lease that this process took."""

    share: int
    stamps: TurnStamps
    clock: Callable[[], float]
    until_s: float

    def stamp(self) -> int:
        return self.stamps.stamp()

    @property
    def known(self) -> KnownRows:
        return self.stamps.known

    def check(self) -> None:
        if self.clock() >= self.until_s:
            raise LeaseLostError(self.share)


class Share:
    """A share as one process sees it.

    Invariants:
        1. Of two processes with valid leases of a share there is never more than one.
        2. No epoch is that of two leases.
    """

    def __init__(
        self, store: RecordStore, number: int, holder: str, lease_s: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._number = number
        self._holder = holder
        self._lease_s = lease_s
        self._clock = clock
        #: What the register said last, and since when it has said so in all but `wanted`.
        self._there: LeaseText | None = None
        self._since_s = clock()
        self._held: _Held | None = None
        #: The number of the last beat tried: a swap of unknown fate must not be taken for a later one.
        self._beat = 0
        self._users = 0
        self._waiting = 0
        self._idle_s = clock()
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_held(self) -> bool:
        """This process has it, by its own clock."""
        return self._held is not None and self._clock() < self._held.until_s

    @property
    def _is_wanted(self) -> bool:
        return self._there is not None and self._there.wanted not in {"", self._holder}

    @property
    def _is_mine_to_change(self) -> bool:
        """The register says that the share is free here, or is to go to another one."""
        if self.is_held:
            return self._is_wanted and self._users == 0
        return self._waiting > 0 and self._there is not None and self._there.holder in {"", self._holder}

    async def enter(self) -> Turn:
        """Wait until this process has the share, and keep it until `leave`, or until the store is away for too long."""
        self._waiting += 1
        try:
            while not (self.is_held and not self._is_wanted):
                if self._task is None or self._task.done():
                    self._task = asyncio.create_task(self._keep(), name=f"pequod-share-{self._number}")
                task = self._task
                await self._news.wait()
                if task.done():
                    task.result()
        finally:
            self._waiting -= 1
        assert self._held is not None, "it is held"
        self._users += 1
        return self._held

    def leave(self) -> None:
        """Say that a propagation is over."""
        self._users -= 1
        if self._users == 0:
            self._idle_s = self._clock()
            if self._is_wanted:
                self._wake.set()

    async def _keep(self) -> None:
        """Take, renew and hand over the share, until nobody here needs it."""
        period_s = self._lease_s / _BEATS
        try:
            while self._waiting or self._users or self.is_held:
                has_answer = False
                with suppress(QuorumError):
                    await self.beat()
                    has_answer = True
                self._tell()
                self._wake.clear()
                if has_answer and self._is_mine_to_change:
                    continue
                pause_s = period_s if self.is_held else period_s / 2
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause_s)
        finally:
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def beat(self) -> None:
        """Look at the register, and do what is to be done next.

        Raises:
            QuorumError: Too few replicas answer.
        """
        wanted = self._next()
        asked_s = self._clock()
        if wanted is not None and wanted.holder != self._holder:
            # Before the store is asked: another one may have it as soon as the store has heard.
            self._lose()
        old = None if self._there is None else self._there.text
        found = await self._store.swap(f"share {self._number}", old, old if wanted is None else wanted.text)
        now = None if found is None else LeaseText.of(found)
        before, self._there = self._there, now
        if now is None or before is None or now[:3] != before[:3]:
            self._since_s = self._clock()
        if now is None or now.holder != self._holder:
            self._lose()
        elif now == wanted:
            until_s = asked_s + self._lease_s * (1 - _DRIFT)
            if self._held is None:
                self._held = _Held(self._number, TurnStamps(now.epoch), self._clock, until_s)
            else:
                self._held.until_s = until_s

    def _lose(self) -> None:
        if self._held is not None:
            self._held.until_s = _NEVER
            self._held = None

    def _next(self) -> LeaseText | None:
        """Return what the register is to say; None: what it says, since another one has the share."""
        there, me = self._there, self._holder
        self._beat += 1
        if there is None:
            return LeaseText(EPOCH_FIRST, self._beat, me, "")
        if self._held is not None:
            assert there.holder == me, "it is held"
            is_idle = not self._users and not self._waiting and self._clock() - self._idle_s >= self._lease_s
            if self._is_wanted and not self._users:
                return LeaseText(there.epoch + 1, 0, there.wanted, "")
            if is_idle:
                return LeaseText(there.epoch, self._beat, "", "")
            if not self._held.stamps.are_spent or self._users:
                return there._replace(beat=self._beat)
            self._lose()
        is_over = self._clock() - self._since_s >= self._lease_s
        if there.holder in {"", me} or is_over:
            return LeaseText(there.epoch + 1, self._beat, me, "")
        return None if there.wanted else there._replace(wanted=me)

    async def close(self) -> None:
        """Give the share back if this process has it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if self._held is None or self._there is None:
            return
        self._lose()
        self._beat += 1
        free = LeaseText(self._there.epoch, self._beat, self._there.wanted, "").text
        with suppress(QuorumError):
            await self._store.swap(f"share {self._number}", self._there.text, free)


class ShareLeases:
    """Who may propagate updates of a base record: one process, and in it one alone or several that share the record.

    Args:
        share_count: How many shares there are; the same for all processes over a store.
        lease_s: How long others wait after a process died; the same for all processes over a store.

    Raises:
        SettingError: One of them is no such number.
    """

    def __init__(
        self,
        store: RecordStore,
        *,
        share_count: int = _SHARES,
        lease_s: float = _LEASE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        refuse_duration("lease_s", lease_s, least_s=LEASE_S_MIN)
        if not 1 <= share_count <= SHARES_MAX:
            raise SettingError("share_count", f"it is a whole number from 1 to {SHARES_MAX}, not {share_count!r}")
        self._locks = RowLocks()
        holder = uuid.uuid4().hex
        self._shares = [Share(store, number, holder, lease_s, clock) for number in range(share_count)]

    @asynccontextmanager
    async def hold(self, view: str, base_key: str, *, exclusive: bool) -> AsyncIterator[Turn]:
        """Have a record for a context, alone or with others of this process."""
        share = self._shares[zlib.crc32(base_key.encode()) % len(self._shares)]
        async with self._locks.hold(view, base_key, exclusive=exclusive):
            turn = await share.enter()
            try:
                yield turn
            finally:
                share.leave()

    async def close(self) -> None:
        """Give all shares back, so that others need not wait until they run out."""
        for share in self._shares:
            await share.close()
