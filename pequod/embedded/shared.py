"""An engine behind a lock, and the watches that follow it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

from pequod.calls import WatchEvent
from pequod.commands.kinds import TIMED
from pequod.embedded.expiry import Expiry, wall_ms
from pequod.embedded.replacing import EmbeddedReplacements
from pequod.engine import Engine
from pequod.engine.answer import Answer, answer
from pequod.engine.joins.watches import Watch
from pequod.errors import ClosedError, StaleError, TokenLostError, WatchCompactedError, refuse_empty_watch
from pequod.freshness import NO_TIMELINE, After, AnyState, Freshness, Latest, Mark, MaxAge, Token, database_of
from pequod.interface import Commands

T = TypeVar("T")

#: The most keys that are removed before a command because they are due: reads remove those of their own range.
_AT_ONCE: Final = 1_000


class SharedEngine:
    """An engine that many threads use, one at a time."""

    def __init__(self, *, key_bytes_max: int, value_bytes_max: int) -> None:
        self._engine = Engine(key_bytes_max=key_bytes_max, value_bytes_max=value_bytes_max)
        # The garbage collector may close an iterator in the middle of a call of the same thread.
        self._lock = threading.RLock()
        self._is_closed = False
        self._expiry = Expiry(self._remove_due)
        #: Puts joins in the places of others.
        self.replacing = EmbeddedReplacements(self.run)
        #: The functions that wake the watches.
        self._wakes: dict[Watch, Callable[[], None]] = {}
        #: Random, as a server's id.
        self.server_id = secrets.randbits(63)
        #: The last revision that a level was met at, and when it was there for sure.
        self._met_revision = -1
        self._met_s = 0.0
        self._mark = Mark(database_of("server", self.server_id), NO_TIMELINE)

    def _remove_due(self) -> float | None:
        """Remove what is due; return after how many seconds there is more to remove, None if no key has a deadline."""
        with self._lock:
            now_ms = wall_ms()
            self._engine.expire_due(now_ms, _AT_ONCE)
            first_ms = self._engine.deadlines.first_ms
            return None if first_ms is None else max(0.0, (first_ms - now_ms) / 1000)

    @property
    def revision(self) -> int:
        """Grows with every change of base data and of joins."""
        return self._engine.revision

    def close(self) -> None:
        """Close the store; calls fail from now on. Closing twice is no error."""
        with self._lock:
            self._is_closed = True
            self._expiry.end()
            self._engine = Engine()
            for wake in self._wakes.values():
                wake()

    def run(self, ask: Callable[[Engine], T]) -> T:
        """Return what ``ask`` returns; it has the engine for itself.

        Raises:
            ClosedError: The store has been closed.
        """
        with self._lock:
            if self._is_closed:
                raise ClosedError
            self._tell_time()
            outcome = ask(self._engine)
            if self._engine.deadlines:
                self._expiry.begin()
            return outcome

    def _tell_time(self) -> float:
        """Tell the engine what time it is, which removes what is due, and return it as reads take it."""
        now = time.monotonic()
        self._engine.tell_time(now)
        self._engine.expire_due(wall_ms(), _AT_ONCE)
        return now

    def answer(self, commands: Commands) -> Answer:
        """Return what the only one of some commands gives; its error is raised.

        Raises:
            ClosedError: The store has been closed.
        """
        kind, arguments, numbers = commands.kinds[0], commands.arguments, commands.numbers
        second = arguments[1] if len(arguments) > 1 else b""
        third = arguments[2] if len(arguments) > 2 else b""
        number, ttl_ms = [*numbers, 0, 0][:2] if numbers else (0, 0)
        with self._lock:
            if self._is_closed:
                raise ClosedError
            now = self._tell_time()
            outcome = answer(self._engine, kind, arguments[0], second, number, now, third, ttl_ms)
            if ttl_ms or kind in TIMED:
                self._expiry.begin()
            return outcome

    @property
    def token(self) -> Token:
        """The present state."""
        return Token({self._mark: self.revision})

    def meet(self, freshness: Freshness | None) -> None:
        """Have the next answers be as fresh as a read asks for; a store in the process lacks nothing that was written.

        Raises:
            TokenLostError: The token is of another store.
            StaleError: It is of a state of this store that has never been.
            ClosedError: The store has been closed.
        """
        if freshness is None or isinstance(freshness, AnyState):
            return
        if isinstance(freshness, After):
            self._check_token(freshness)
        self.run(lambda engine: self._drop_old_snapshots(engine, freshness))

    def _check_token(self, after: After) -> None:
        for mark, position in after.token.positions.items():
            if mark != self._mark:
                raise TokenLostError("it is of another store, or of one that is gone")
            if position > self.revision:
                raise StaleError(0.0, after.wait_s, "the store has not come to the state of the token")

    def _drop_old_snapshots(self, engine: Engine, freshness: After | Latest | MaxAge) -> None:
        """Have snapshots taken anew that are older than a read asks for."""
        if not engine.is_timed:
            return
        now = time.monotonic()
        if engine.revision != self._met_revision:
            self._met_revision, self._met_s = engine.revision, now
        # A snapshot that was taken since then shows everything.
        oldest_s = min(self._met_s, now - freshness.age_s) if isinstance(freshness, MaxAge) else self._met_s
        engine.drop_snapshots(b"", None, oldest_s)

    def follow(
        self,
        first: bytes,
        last: bytes | None,
        wake: Callable[[], None],
        *,
        rows: bool,
        after: WatchEvent | None,
    ) -> tuple[Watch, WatchEvent]:
        """Begin to watch a range; ``wake`` is called from any thread when there is something to settle."""
        refuse_empty_watch(first, last)
        now = time.monotonic()

        def begin(engine: Engine) -> tuple[Watch, WatchEvent]:
            if after is not None and (after.server_id, after.revision) != (self.server_id, engine.revision):
                raise WatchCompactedError("a store in the process keeps no changes for those who do not follow")
            watch = engine.watch(first, last, wake, now=now)
            self._wakes[watch] = wake
            found = engine.scan(first, last, now=now) if rows else None
            return watch, WatchEvent(engine.revision, [], found, self.server_id, self.token, 0.0)

        return self.run(begin)

    def settle(self, watch: Watch) -> WatchEvent:
        """Return the changes in a watched range since the last call."""

        def take(engine: Engine) -> WatchEvent:
            changes = engine.settle(watch, now=time.monotonic())
            if watch.ended is not None:
                raise WatchCompactedError(watch.ended)
            return WatchEvent(engine.revision, changes, None, self.server_id, self.token, 0.0)

        return self.run(take)

    def unfollow(self, watch: Watch) -> None:
        """End a watch."""
        with self._lock:
            del self._wakes[watch]
            if not self._is_closed:
                self._engine.unwatch(watch)
