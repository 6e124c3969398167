"""The lines of the log about the feed of one database: it breaks, it is back, it is older than it may be."""

from __future__ import annotations

import logging

from pequod_server.backing import Status

log = logging.getLogger("pequod.backing")


class FeedLog:
    """Says what has changed since it last looked.

    Args:
        stale_max_s: Reads without a level fail once the feed is older; 0 for no such bound.
    """

    __slots__ = ("_stale_max_s", "_told", "_was_down", "_was_stale")

    def __init__(self, stale_max_s: float) -> None:
        self._stale_max_s = stale_max_s
        self._was_down = False
        self._was_stale = False
        #: The last error that was told.
        self._told = ""

    def look(self, status: Status, *, is_stale: bool) -> None:
        """Say what has changed."""
        is_down = status.state == "down"
        if is_down and not (self._was_down and status.error == self._told):
            self._told = status.error
            log.error(
                "the feed of the database is down", extra={"error": status.error, "stale_max_s": self._stale_max_s}
            )
        if self._was_down and status.state == "ok":
            log.info("the feed of the database is back")
        self._was_down = is_down
        if is_stale and not self._was_stale:
            log.error("reads of the database's ranges fail", extra={"stale_max_s": self._stale_max_s})
        elif self._was_stale and not is_stale:
            log.info("reads of the database's ranges go on")
        self._was_stale = is_stale
