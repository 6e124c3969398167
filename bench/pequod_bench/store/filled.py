"""Folders of data that are filled without a server."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from pequod_server.data.folder import Folder
from pequod_server.data.opening import open_rows

#: What a row of 100 bytes takes in memory, with its key.
ROW_BYTES: Final = 216
ROWS_A_GROUP: Final = 20
_ROWS_A_BATCH: Final = 5000


def key_of(number: int) -> bytes:
    """Return the key of a row."""
    return b"p|%07d|%02d" % divmod(number, ROWS_A_GROUP)


def value_of(number: int, version: int) -> bytes:
    """Return the value of a row after some writes."""
    return Random(number * 1000 + version).randbytes(100)


def fill(path: Path, row_count: int) -> None:
    """Write a folder with rows, as a server has closed it."""
    with Folder(path) as folder:
        rows = open_rows(folder)
        for first in range(0, row_count, _ROWS_A_BATCH):
            stop = min(row_count, first + _ROWS_A_BATCH)
            rows.write({key_of(number): value_of(number, 0) for number in range(first, stop)}, stop)
        rows.sync()
        folder.note.written = folder.note.synced = row_count
        rows.close()
        folder.note.end()
