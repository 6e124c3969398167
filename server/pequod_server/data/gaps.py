"""The logs that the list of files needs: whether one of them is gone.

    the list (MANIFEST)    names files of rows, and the log from which on rows are in no file: it asks for 12.log
    12.log  15.log         right
            15.log         the file of 12's rows was in the list, so 12.log was removed; the list has lost its end

RocksDB takes the logs that there are, and says nothing. The list asks for a log that RocksDB has made, and removes only
once a later list asks for a later one. One case differs: at an opening, the list asks for a number that is no log's,
and the log behind it comes to be. So the note has both for the present opening.

Of logs that the list asks for, two at most have rows (`options`): if the second one is gone, the position tells.
"""

from __future__ import annotations

from pathlib import Path

from pequod_server.data.library import Logs


def gap(found: Logs, noted: Logs | None, *, is_opening: bool) -> str:
    """Return why rows are missing between the list of files and the logs, empty if none are.

    Args:
        found: Where the logs begin.
        noted: Where they began when the folder was opened last; None: nobody knows.
        is_opening: Whether that opening has not come to its end: nothing was written since.
    """
    if noted is None:
        return ""
    if found.asked < noted.asked:
        asked, later = _name(found.asked), _name(noted.asked)
        return f"the list of files is an old one: it asks for {asked}, and a later one asked for {later}"
    if found.asked == noted.asked:
        needed = noted.first
    elif is_opening:
        # All rows were in one file, or in none: the position tells.
        return ""
    else:
        needed = found.asked
    if not needed or found.first <= needed:
        # If no log is there, the position tells.
        return ""
    return (
        f"the list of files asks for {_name(needed)}, which is gone, and {_name(found.first)} is there: "
        "the list has lost its end, or the log was removed"
    )


def list_of(path: Path) -> Path:
    """Return the list of files of rows."""
    try:
        return path / (path / "CURRENT").read_text().strip()
    except (OSError, ValueError):
        return path


def _name(number: int) -> str:
    return f"{number:06}.log"
