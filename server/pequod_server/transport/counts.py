"""How many calls have come and ended, as channelz tells it."""

from __future__ import annotations

import time


class CallCounts:
    """The counts of one server since its start."""

    __slots__ = ("begun", "failed", "last_begun_s", "succeeded")

    def __init__(self) -> None:
        self.begun = self.succeeded = self.failed = 0
        #: When the last one began, in seconds since 1970; 0: none has.
        self.last_begun_s = 0.0

    def begin(self) -> None:
        """Count a call that begins."""
        self.begun += 1
        self.last_begun_s = time.time()

    def pass_by(self, count: int) -> None:
        """Count calls that have begun and ended well in this turn of the event loop."""
        if count:
            self.begun += count
            self.succeeded += count
            self.last_begun_s = time.time()

    def end(self, *, is_ok: bool) -> None:
        """Count a call whose stream is over."""
        if is_ok:
            self.succeeded += 1
        else:
            self.failed += 1
