"""The leases of backfills.

BeginBackfill -> engine.backfills.begin         a lease begins
ReadBackfill, LoadBackfill, RenewBackfill       the lease begins anew
EndBackfill, or no call before the lease ends   the backfill ends, and the engine forgets its record
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from pequod_proto import pequod_pb2 as pb

from pequod.engine import Backfill, Engine, LimitExceededError
from pequod.errors import UnknownBackfillError
from pequod_server.config import ServerConfig
from pequod_server.wire.bounds import last_of

#: How many backfills that ended are still listed.
_ENDED_MAX: Final = 16
_LEASE_MAX_S: Final = 86_400.0
#: The engine itself ends backfills, as when their join is dropped; it is asked this often.
_LOOK_S: Final = 0.5


class Leased:
    """A backfill with its lease."""

    def __init__(self, backfill: Backfill, lease_s: float) -> None:
        self.id = secrets.randbits(63)
        self.backfill = backfill
        self.lease_s = lease_s
        self.begun_s = time.monotonic()
        self.expires_s = self.begun_s + lease_s
        #: When the server saw that it had ended.
        self.ended_s: float | None = None
        #: The stage that its driver told last.
        self.stage = ""
        self.rows_expected = 0

    def message(self) -> pb.Backfill:
        """Return the backfill as a message."""
        backfill, now = self.backfill, time.monotonic()
        record_keys, record_bytes = backfill.changed_size()
        return pb.Backfill(
            id=self.id,
            join=backfill.join.info.name,
            first=backfill.first,
            last=backfill.last,
            level=backfill.plan.level,
            revision=backfill.revision,
            sources=[pb.Range(first=first, last=last) for first, last in backfill.sources],
            ranges_loaded=backfill.loaded.range_count,
            rows_loaded=backfill.loaded.row_count,
            pieces_skipped=backfill.loaded.skipped_count,
            record_keys=record_keys,
            record_bytes=record_bytes,
            stage=self.stage,
            rows_expected=self.rows_expected,
            age_s=(now if self.ended_s is None else self.ended_s) - self.begun_s,
            lease_s=0.0 if backfill.ended else max(0.0, self.expires_s - now),
            ended=backfill.ended or "",
        )


class LeasedBackfills:
    """The backfills of a server.

    Requires:
        A running event loop.
    """

    def __init__(self, engine: Engine, config: ServerConfig) -> None:
        self._engine = engine
        self._config = config
        self._live: dict[int, Leased] = {}
        self._ended: deque[Leased] = deque(maxlen=_ENDED_MAX)
        self._reaper: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Leased]:
        self._sort_out()
        yield from self._live.values()
        yield from reversed(self._ended)

    def begin(self, request: pb.BeginBackfillRequest) -> Leased:
        """Begin a backfill.

        Raises:
            LimitExceededError: There are ``backfills_max`` already.
            UnknownJoinError, NotBackfillableError: As the engine says.
        """
        self._sort_out()
        if len(self._live) >= self._config.backfills_max:
            raise LimitExceededError("backfills_max", len(self._live) + 1, self._config.backfills_max)
        backfill = self._engine.backfills.begin(
            request.join,
            request.first,
            last_of(request),
            self._engine.revision,
            level=request.level if request.HasField("level") else None,
            record_bytes_max=self._config.backfill_bytes_max,
        )
        leased = Leased(backfill, min(request.lease_s or self._config.backfill_lease_s, _LEASE_MAX_S))
        self._live[leased.id] = leased
        self._watch()
        return leased

    def renew(self, number: int, join: str) -> Leased:
        """Return a backfill; its lease begins anew.

        Raises:
            UnknownBackfillError: There is none, or not of that join.
            BackfillEndedError: It has ended.
        """
        leased = self._find(number, join)
        leased.backfill.refuse_ended()
        leased.expires_s = time.monotonic() + leased.lease_s
        return leased

    def end(self, number: int, join: str, reason: str) -> Leased:
        """End a backfill; ending it twice is no error.

        Raises:
            UnknownBackfillError: There is none, or not of that join.
        """
        leased = self._find(number, join)
        self._engine.backfills.end(leased.backfill, reason or "cancelled")
        self._sort_out()
        return leased

    def _find(self, number: int, join: str) -> Leased:
        for leased in self:
            if leased.id == number and leased.backfill.join.info.name == join:
                return leased
        raise UnknownBackfillError(number)

    def _sort_out(self) -> None:
        """Move backfills that have ended from the live ones to the ended ones."""
        for leased in [leased for leased in self._live.values() if leased.backfill.ended is not None]:
            del self._live[leased.id]
            leased.ended_s = time.monotonic()
            self._ended.append(leased)

    def _watch(self) -> None:
        """Wake up when the next lease may be over, and often enough to see what the engine has ended."""
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None
        if self._live:
            wait_s = min(leased.expires_s for leased in self._live.values()) - time.monotonic()
            self._reaper = asyncio.get_running_loop().call_later(min(max(0.0, wait_s), _LOOK_S), self._reap)

    def _reap(self) -> None:
        for leased in list(self._live.values()):
            if leased.expires_s <= time.monotonic():
                reason = f"nothing was heard of its driver for {leased.lease_s:g} s"
                self._engine.backfills.end(leased.backfill, reason)
        self._sort_out()
        self._watch()
