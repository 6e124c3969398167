"""What clients see of errors of the database: that something is wrong, and nothing that the database holds.

A store's error may hold its host, user and statements, or values of other rows. Clients get an error of the same class
without them, and a number; the log has the whole error under this number. Errors of `DATABASE`, or of one that is named
after it, as in "the database A", are meant for clients as they are.
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

#: Stands for the store in what clients see.
DATABASE: Final = "the database"
#: The part of an error about a write that broke off, which clients see as well.
UNKNOWN_FATE: Final = "whether the write was carried out is not known"
#: How long a text that is in the log keeps its number, and is not logged again.
_AGAIN_S: Final = 60.0
_NOTED_MAX: Final = 100


def never_there(loads: int) -> BackingUnavailableError:
    """Return the error of a read whose ranges are forgotten as fast as they are loaded."""
    reason = f"what a read needs was still not there after {loads} loads; ranges are forgotten"
    return BackingUnavailableError(DATABASE, reason)


class _Notes:
    """Texts that went into the log lately, with their numbers and times."""

    def __init__(self) -> None:
        self._noted: dict[str, tuple[str, float]] = {}

    def number(self, text: str) -> str:
        """Return the number of a text in the log; log the text if it is not there."""
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
        case BackingUnavailableError() if error.store != DATABASE and not error.store.startswith(f"{DATABASE} "):
            number = _notes.number(str(error))
            fate = f", and {UNKNOWN_FATE}" if UNKNOWN_FATE in error.reason else ""
            return BackingUnavailableError(
                DATABASE, f"it does not answer{fate}; the server's log has more under {number}"
            )
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


def of_one(name: str, error: BackingUnavailableError) -> BackingUnavailableError:
    """Return the error with the name of its database, for clients too, where there are several."""
    if not name:
        return error
    shown = public(error)
    assert isinstance(shown, BackingUnavailableError)
    return BackingUnavailableError(f"{DATABASE} {name}", shown.reason)
