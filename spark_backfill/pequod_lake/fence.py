"""The fence: rows of writers in the catalog, without which it takes no files.

    writer      lock held -> row -> files -> commit: the row is there
    sweep       row read -> lock not held -> row deleted -> files listed -> files of writers without a row deleted

A lock tells that a process lives, and may be lost while it does. The row decides: it is deleted in one transaction and
looked at in another, so of a sweep and a commit one comes first. If it is the sweep, the commit is refused; if it is
the commit, the catalog names the files and no sweep deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from pequod_lake.database import Session
from pequod_lake.errors import WriterLostError
from pequod_lake.locks import Locks
from pequod_lake.runs import LakeFile

TABLE = "CREATE TABLE lake_writer (writer TEXT PRIMARY KEY)"


def writer_of(path: str) -> str:
    """Return the id of the writer of a file.

    >>> writer_of("data/main/posts/sort-3f9a01bc77d0-1.parquet")
    '3f9a01bc77d0'
    """
    return PurePosixPath(path).name.split("-")[1]


def begin(db: Session, locks: Locks, writer: str) -> None:
    """Write the row of a writer that holds its lock, and end those that are dead."""
    living(db, locks)
    db.execute("INSERT INTO lake_writer VALUES (?)", (writer,))


def living(db: Session, locks: Locks) -> set[str]:
    """End the writers whose locks are not held any more, and return the others."""
    # Rows first: a row is written under its lock, so a lock that is not held now is gone.
    named = named_writers(db)
    dead = named - locks.writers() if named else named
    if dead:
        db.executemany("DELETE FROM lake_writer WHERE writer = ?", [(writer,) for writer in sorted(dead)])
    return named - dead


def named_writers(db: Session) -> set[str]:
    """Return the writers that have rows."""
    return {writer for (writer,) in db.execute("SELECT writer FROM lake_writer").fetchall()}


def check(db: Session, files: Iterable[LakeFile]) -> None:
    """Pass if the writers of all files have their rows.

    Raises:
        WriterLostError: One has been taken for dead.
    """
    for writer in sorted({writer_of(file.path) for file in files}):
        if db.execute("SELECT 1 FROM lake_writer WHERE writer = ?", (writer,)).fetchone() is None:
            raise WriterLostError(writer)
