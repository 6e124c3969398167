"""A backfill's lease: a server ends a backfill of whose driver it hears nothing, so a thread speaks of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pequod.calls import BackfillStatus
from pequod.client import Client
from pequod.errors import BackfillEndedError, PequodError, UnknownBackfillError

#: At most; at least three times in a lease.
_RENEW_S: Final = 2.0


class Lease:
    """Keeps a backfill alive until it is released, and tells the server how far it is."""

    def __init__(self, client: Client, status: BackfillStatus) -> None:
        self._client = client
        self._status = status
        #: What is being done, and about how many rows there will be; 0 while nobody knows.
        self.stage = "starting Spark"
        self.rows_expected = 0
        #: Why the server ended the backfill, if it did.
        self.ended: PequodError | None = None
        #: Told of the progress, and of the end if the server ends it; both from the lease's thread.
        self.on_progress: Callable[[BackfillStatus], None] = lambda _status: None
        self.on_end: Callable[[], None] = lambda: None
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"pequod backfill {status.id:x}", daemon=True)
        self._thread.start()

    def release(self) -> None:
        """Renew it no more; releasing it twice is no error."""
        self._released.set()
        self._thread.join()

    def refuse_ended(self) -> None:
        """Raise why the server ended the backfill, if it did."""
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
                # The tasks will say what is wrong, if it stays so.
                continue
