"""The state of a change feed, and the pauses before it is tried again."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace

from pequod.freshness import Mark
from pequod_server.backing.errors import BackingUnavailableError, PackError, SchemaError
from pequod_server.backing.store import Changes, Event, History, KeyRange, Reload, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Waits that double from ``first_s`` to ``most_s``, with up to a half taken off at random."""

    first_s: float = 0.05
    most_s: float = 5.0

    def wait_s(self, failures: int) -> float:
        """Return the pause after ``failures`` failures in a row."""
        # Random numbers here only keep servers from reconnecting at the same moment.
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)  # noqa: S311


class FeedBrokenError(Exception):
    """The feed cannot continue; ``is_lost`` says that changes were or may have been missed."""

    def __init__(self, reason: str, *, is_lost: bool) -> None:
        super().__init__(reason)
        self.is_lost = is_lost


class Health:
    """Keeps the status of a store's feed."""

    __slots__ = ("_clock", "_mark", "status")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: Of the history that was told of last.
        self._mark: Mark | None = None
        self.status = Status(
            state="starting",
            since_s=clock(),
            fresh_s=None,
            error="",
            lag=None,
            failure_count=0,
            reload_count=0,
            unpackable_count=0,
            unpackable="",
        )

    def now(self) -> float:
        """Return the time, by a clock that is never set."""
        return self._clock()

    def stands(self, fresh_s: float | None, lag: int | None = None) -> None:
        """Note that the feed is established.

        Args:
            fresh_s: When the database was asked for a position that the feed has passed since; None if the feed has
                passed none since the last call. An answer of the database alone is no reason for another value.
            lag: How far the feed is behind; None if that is unknown.
        """
        if self.status.state == "closed":
            return
        since_s = self.status.since_s if self.status.state == "ok" else self._clock()
        fresh_s = self.status.fresh_s if fresh_s is None else fresh_s
        self.status = replace(self.status, state="ok", since_s=since_s, fresh_s=fresh_s, lag=lag)

    def told(self, event: Event) -> None:
        """Note what is told next: where another history begins, the age that is known is that of the one before."""
        history = _history_of(event)
        if history is not None and history.mark != self._mark:
            self._mark = history.mark
            self.status = replace(self.status, fresh_s=None)

    def down(self, error: str) -> None:
        """Note that the feed broke, or could not be restored."""
        if self.status.state == "closed":
            return
        since_s = self.status.since_s if self.status.state == "down" else self._clock()
        failures = self.status.failure_count + 1
        self.status = replace(self.status, state="down", since_s=since_s, error=error, lag=None, failure_count=failures)

    def trouble(self, error: str) -> None:
        """Note that the feed missed a change, and continues."""
        self.status = replace(self.status, error=error)

    def closed(self) -> None:
        """Note that the store was closed."""
        self.status = replace(self.status, state="closed", since_s=self._clock(), lag=None)

    def reloading(self) -> None:
        """Note that ranges have to be read again."""
        self.status = replace(self.status, reload_count=self.status.reload_count + 1)

    def unpackable(self, error: PackError) -> None:
        """Note a row that has no key."""
        count = self.status.unpackable_count + 1
        self.status = replace(self.status, unpackable_count=count, unpackable=str(error))


def _history_of(event: Event) -> History | None:
    """Return the history that an event says it belongs to; None: to that of the event before."""
    return None if isinstance(event, Changes) else event.history


#: Starts a feed after a position (None: from now on); its first event says that it is established.
Session = Callable[[int | None], AsyncGenerator[Event, None]]


async def mended(
    session: Session,
    since: int | None,
    everything: tuple[KeyRange, ...],
    health: Health,
    backoff: Backoff,
    closing: asyncio.Event,
) -> AsyncIterator[Event]:
    """Yield the events of one session after another, with a `Reload` if changes between them may be missing."""
    position, reason, failures = since, "", 0
    while not closing.is_set():
        try:
            async with contextlib.aclosing(session(None if reason else position)) as events:
                async for event in events:
                    failures = 0
                    position = event.position
                    health.told(event)
                    if reason:
                        # The session is established: loads from here on are followed by later changes. The reload comes
                        # first, so that the position does not count as reached before the reload is done.
                        health.reloading()
                        yield Reload(position, everything, reason, history=_history_of(event))
                        reason = ""
                    if isinstance(event, Reload):
                        health.reloading()
                    yield event
            return
        except FeedBrokenError as error:
            text, is_lost = str(error), error.is_lost
        except BackingUnavailableError as error:
            text, is_lost = str(error), False
        except SchemaError as error:
            text, is_lost = str(error), True
        if is_lost:
            reason = text
        failures += 1
        health.down(text)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), backoff.wait_s(failures))
