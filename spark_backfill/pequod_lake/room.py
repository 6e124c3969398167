"""Room on a full disk: a file that takes up space until `expire` needs it.

    DIR/reserve     4 MiB of nothing

What deletes files first writes to the catalog which ones it deletes, and a catalog that nobody has open cannot even be
read without a little room. So a lake keeps some, and gives it up before it expires old states.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

#: For the log and the index of the log of SQLite, while a batch of runs is taken out of the catalog.
_ROOM_BYTES: Final = 4 << 20


def keep_room(folder: Path) -> None:
    """Take up room that is there, unless it is taken; a disk that is too full for it is left as it is."""
    path = folder / "reserve"
    if path.exists():
        return
    try:
        path.write_bytes(bytes(_ROOM_BYTES))
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def give_room(folder: Path) -> None:
    """Give the room to others."""
    (folder / "reserve").unlink(missing_ok=True)


def is_short(folder: Path) -> bool:
    """Return whether room is kept in a lake whose disk has less than that."""
    return (folder / "reserve").exists() and shutil.disk_usage(folder).free < _ROOM_BYTES
