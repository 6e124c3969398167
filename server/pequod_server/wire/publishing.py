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

#: Stand for the store in what clients see; the name of a database or of a home group may follow.
DATABASE: Final = "the database"
HOME_GROUP: Final = "the home group"
#: A home, in what it says of itself.
HOME: Final = "the home"
#: With this, stores that are homes begin in the log: `PequodStore`, and the connections to a home.
_HOMES: Final = ("pequod://", HOME)
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

    def number(self, text: str, failing: str) -> str:
        """Return the number of a text in the log; log the text if it is not there.

        Args:
            failing: The database or a home.
        """
        now = time.monotonic()
        number, noted_s = self._noted.get(text, ("", 0.0))
        if number and now - noted_s < _AGAIN_S:
            return number
        if len(self._noted) >= _NOTED_MAX:
            self._noted.clear()
        number = secrets.token_hex(4)
        self._noted[text] = number, now
        log.error("%s failed a call", failing, extra={"number": number, "reason": text})
        return number


_notes: Final = _Notes()


def public(error: PequodError) -> PequodError:
    """Return an error as clients may know it; those that come from no store are returned as they are."""
    match error:
        case BackingUnavailableError():
            return _public_of(HOME_GROUP if error.store.startswith(_HOMES) else DATABASE, error)
        case SchemaError() if error.store != DATABASE:
            number = _notes.number(str(error), DATABASE)
            problem = f"its tables are not as they must be; the server's log has more under {number}"
            return SchemaError(DATABASE, [problem])
        case WriteRefusedError() if error.store != DATABASE:
            return WriteRefusedError(DATABASE, error.reason)
        case BackingStaleError() if error.reason:
            # The log has said why, when the feed went down.
            return BackingStaleError(error.age_s, error.stale_max_s, "")
        case _:
            return error


def of_one(title: str, error: BackingUnavailableError) -> BackingUnavailableError:
    """Return the error with the name of its database, for clients too, where there are several, or of its home group.

    Args:
        title: As `Loader.title`.
    """
    if title == DATABASE:
        return error
    shown = _public_of(title, error)
    if title.startswith(HOME_GROUP) and shown.store.startswith(DATABASE):
        # A home has said it of its database.
        return BackingUnavailableError(f"{DATABASE} of {title}", shown.reason)
    return BackingUnavailableError(title, shown.reason)


def _public_of(title: str, error: BackingUnavailableError) -> BackingUnavailableError:
    """Return the error of a store as clients may know it.

    Args:
        title: The store, as clients may know it.
    """
    store = error.store
    if store in (DATABASE, HOME, HOME_GROUP) or store.startswith((f"{DATABASE} ", f"{HOME_GROUP} ")):
        return error
    fate = f", and {UNKNOWN_FATE}" if UNKNOWN_FATE in error.reason else ""
    if title.startswith(HOME_GROUP):
        number = _notes.number(str(error), "a home")
        said = f"its homes do not answer{fate}; ask again later, or see `pequod cluster status`"
    else:
        number = _notes.number(str(error), DATABASE)
        said = f"it does not answer{fate}"
    return BackingUnavailableError(title, f"{said}; the server's log has more under {number}")
