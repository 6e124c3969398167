"""How many calls have come and ended, as channelz tells it."""

from __future__ import annotations

import time

from pequod_server.transport.hot_calls import HotCalls


class CallCounts:
    """The counts of one server since its start.

    Attributes:
        hot: Counts hot calls, each of which begins and ends well in one turn of the event loop; None: there are none.
    """

    __slots__ = ("_begun", "_begun_s", "_succeeded", "failed", "hot")

    def __init__(self) -> None:
        self.hot: HotCalls | None = None
        self._begun = self._succeeded = self.failed = 0
        self._begun_s = 0.0

    @property
    def begun(self) -> int:
        """How many have begun."""
        return self._begun + (0 if self.hot is None else self.hot.native.answered)

    @property
    def succeeded(self) -> int:
        """How many have ended well."""
        return self._succeeded + (0 if self.hot is None else self.hot.native.answered)

    @property
    def last_begun_s(self) -> float:
        """When the last one began, in seconds since 1970; 0: none has."""
        if self.hot is None or not self.hot.native.answered:
            return self._begun_s
        return max(self._begun_s, time.time() - (time.monotonic() - self.hot.native.answered_s))

    def begin(self) -> None:
        """Count a call that begins."""
        self._begun += 1
        self._begun_s = time.time()

    def end(self, *, is_ok: bool) -> None:
        """Count a call whose stream is over."""
        if is_ok:
            self._succeeded += 1
        else:
            self.failed += 1
