"""A backfill's lease: a server ends a backfill whose driver is silent, so a thread renews the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pequod.calls import BackfillStatus
from pequod.client import Client
from pequod.errors import BackfillEndedError, PequodError, UnknownBackfillError

#: The longest pause between two renewals; a lease is renewed at least three times before it ends.
_RENEW_S: Final = 2.0


class Lease:
    """Keeps a backfill alive until it is released, and reports its progress to the server."""

    def __init__(self, client: Client, status: BackfillStatus) -> None:
        self._client = client
        self._status = status
        #: The present step, and the approximate number of rows; 0 while it is unknown.
        self.stage = "starting Spark"
        self.rows_expected = 0
        #: Why the server ended the backfill, if it did.
        self.ended: PequodError | None = None
        #: Called with the progress, and at the end if the server ends the backfill; both in the lease's thread.
        self.on_progress: Callable[[BackfillStatus], None] = lambda _status: None
        self.on_end: Callable[[], None] = lambda: None
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"pequod backfill {status.id:x}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Stop renewing the lease; releasing it twice is no error."""
        self._released.set()
        self._thread.join()

    def refuse_ended(self) -> None:
        """Raise the reason for which the server ended the backfill, if it did."""
        if self.ended is not None:
            raise self.ended

    def _renew(self) -> None:
        while not self._released.wait(min(_RENEW_S, self._status.lease_s / 3)):
            try:
                self.on_progress(self._client.backfills.renew(self._status, self.stage, self.rows_expected))
            except (BackfillEndedError, UnknownBackfillError) as error:
                self.ended = error
                self.on_end()
                return
            except PequodError:
                # If the server stays away, the tasks will report it.
                continue
