"""What clients are told of errors of the database: that something is wrong, and nothing of what is there.

A store's error may hold its host, user and statements, or values of other rows. Clients get an error of the same class
without them, and a number under which the log has all of it. Errors of `DATABASE`, which name no store, are meant for
clients as they are.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import Final

from pequod.errors import (
    BackingStaleError,
    BackingUnavailableError,
    PequodError,
    SchemaError,
    WriteRefusedError,
)

log = logging.getLogger("pequod.server")

#: Stands for the store in what clients are told.
DATABASE: Final = "the database"
#: The same text goes into the log so often at most, and has one number meanwhile.
_AGAIN_S: Final = 60.0
_NOTED_MAX: Final = 100


class _Notes:
    """Texts that went into the log lately, with their numbers and when."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, float]] = {}

    def number(self, text: str) -> str:
        """Return the number of a text in the log, and put it there if it is not."""
        now = time.monotonic()
        number, noted_s = self._noted.get(text, ("", 0.0))
        if number and now - noted_s < _AGAIN_S:
            return number
        if len(self._noted) >= _NOTED_MAX:
            self._noted.clear()
        number = secrets.token_hex(4)
        self._noted[text] = number, now
        log.error("the database failed a call", extra={"number": number, "reason": text})
        return number


_notes: Final = _Notes()


def public(error: PequodError) -> PequodError:
    """Return an error as clients may know it; those that come from no store are returned as they are."""
    match error:
        case BackingUnavailableError() if error.store != DATABASE:
            number = _notes.number(str(error))
            return BackingUnavailableError(DATABASE, f"it does not answer; the server's log has more under {number}")
        case SchemaError() if error.store != DATABASE:
            number = _notes.number(str(error))
            problem = f"its tables are not as they must be; the server's log has more under {number}"
            return SchemaError(DATABASE, [problem])
        case WriteRefusedError() if error.store != DATABASE:
            return WriteRefusedError(DATABASE, error.reason)
        case BackingStaleError() if error.reason:
            # The log has said why, when the feed went down.
            return BackingStaleError(error.age_s, error.stale_max_s, "")
        case _:
            return error
