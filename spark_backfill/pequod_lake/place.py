"""Where a lake is: its files, its catalog, its locks and its clock.

DIR                      files in a folder, catalog in DIR/catalog.sqlite, locks of files, the machine's clock
DIR + postgresql://      files in a folder, DIR/lake.json names the catalog; locks and clock of PostgreSQL
s3://...                 files in an object store, and the rest as above
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pequod_installed.names import how_to_install

from pequod_lake.clock import Clock, machine_clock
from pequod_lake.database import Database, LakeDatabase
from pequod_lake.ducklake_tables import create_tables
from pequod_lake.errors import LakeError, LakeExistsError, LakeUnreachableError, NoLakeError
from pequod_lake.locks import FileLocks, Locks
from pequod_lake.room import give_room, is_short, keep_room
from pequod_lake.schema import LakeSchema
from pequod_lake.store import FolderFiles, LakeFiles

#: The file of a lake that names its catalog, if that is elsewhere.
POINTER: Final = "lake.json"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """The parts of a lake that depend on where it is."""

    #: How users name it.
    name: str
    files: LakeFiles
    database: Database
    locks: Locks
    now: Clock

    @property
    def folder(self) -> Path | None:
        """The folder of the files; None if they are elsewhere."""
        return self.files.folder if isinstance(self.files, FolderFiles) else None

    @property
    def _disk(self) -> Path | None:
        """The folder that has the catalog, which needs room on its disk."""
        return self.folder if isinstance(self.database, LakeDatabase) else None

    def keep_room(self) -> None:
        """Take up room for `expire`, where the catalog is on this disk."""
        if self._disk is not None:
            keep_room(self._disk)

    def give_room(self) -> None:
        """Give up that room."""
        if self._disk is not None:
            give_room(self._disk)

    @property
    def is_short(self) -> bool:
        """Whether room is kept on a disk that has less than that."""
        return self._disk is not None and is_short(self._disk)

    def close(self) -> None:
        """End what is open."""
        self.locks.close()
        self.database.close()


def opened(location: Path | str, clock: Clock = machine_clock) -> LakePlace:
    """Return where a lake is that is there.

    Raises:
        NoLakeError: There is none.
    """
    files = opened_files(location)
    if isinstance(files, FolderFiles) and (files.folder / "catalog.sqlite").is_file():
        database = LakeDatabase(files.folder / "catalog.sqlite")
        return LakePlace(files.name, files, database, FileLocks(files.folder / "locks"), clock)
    try:
        pointer = json.loads(files.part(POINTER, 0, 1 << 20))
        catalog = str(pointer["catalog"])
    except FileNotFoundError as error:
        raise NoLakeError(
            files.name, f"it has no catalog.sqlite and no {POINTER}; `pequod lake init` makes a lake"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        if files.is_unreachable(error):
            raise LakeUnreachableError(f"{POINTER} of {files.name} cannot be read: {error}") from error
        raise NoLakeError(files.name, f"its {POINTER} cannot be read: {error}") from error
    return _with_postgres(files, catalog)


def create(location: Path | str, schema: LakeSchema, catalog: str | None, clock: Clock = machine_clock) -> None:
    """Make an empty lake.

    Args:
        catalog: The connection string of PostgreSQL; None for a catalog in the lake's folder.

    Raises:
        LakeExistsError: The location, or the catalog, holds something.
        LakeError: It cannot be made there.
    """
    files = opened_files(location)
    if isinstance(files, FolderFiles):
        files.folder.mkdir(parents=True, exist_ok=True)
    if not files.is_empty():
        raise LakeExistsError(files.name)
    if catalog is None:
        _create_here(files, schema, clock)
    else:
        _create_in_postgres(files, schema, catalog)


def _create_here(files: LakeFiles, schema: LakeSchema, clock: Clock) -> None:
    if not isinstance(files, FolderFiles):
        raise LakeError(
            f"{files.name} is no folder, so its catalog is elsewhere: add --catalog postgresql://HOST/DATABASE"
        )
    folder = files.folder.resolve()
    (folder / "data").mkdir()
    (folder / "locks").mkdir()
    database = LakeDatabase(folder / "catalog.sqlite")
    create_tables(f"{folder / 'data'}/", schema, database, clock)
    database.close()
    keep_room(folder)


def _create_in_postgres(files: LakeFiles, schema: LakeSchema, catalog: str) -> None:
    place = _with_postgres(files, catalog)
    try:
        postgres = _postgres()
        found = place.database.connection.execute("SELECT to_regclass('ducklake_metadata')::text").fetchone()
        if found[0] is not None:
            raise LakeExistsError(f"the database {postgres.shown(catalog)}")
        # First: if nothing can be written there, the database stays empty, too.
        with files.create(POINTER) as file:
            file.write(json.dumps({"catalog": postgres.shown(catalog)}).encode() + b"\n")
        try:
            data = files.data_path()
            create_tables(data, schema, place.database, place.now, postgres.ALIVE_TABLE, in_postgres=True)
        except BaseException:
            files.remove(POINTER)
            raise
    except OSError as error:
        raise files.failure(POINTER, "be written", error) from error
    finally:
        place.close()


def _with_postgres(files: LakeFiles, catalog: str) -> LakePlace:
    postgres = _postgres()
    database = postgres.PostgresDatabase(catalog)
    return LakePlace(files.name, files, database, postgres.SessionLocks(database), database.now)


def opened_files(location: Path | str) -> LakeFiles:
    """Return the files at a place, whether there is a lake or not.

    Raises:
        LakeError: The address is not right.
    """
    text = str(location)
    if isinstance(location, Path) or "://" not in text:
        return FolderFiles(Path(location))
    if text.startswith("file://"):
        return FolderFiles(Path(unquote(urlsplit(text).path)))
    from pequod_lake.objects import object_files  # noqa: PLC0415 - slow to import, and not needed for a folder

    return object_files(text)


def _postgres() -> Any:
    """Return the module that needs a driver of PostgreSQL, for lakes that have their catalogs there."""
    if find_spec("psycopg") is None:
        raise LakeError(f"a catalog in PostgreSQL needs psycopg: {how_to_install('lake-postgres')}")
    from pequod_lake import postgres  # noqa: PLC0415 - see above

    return postgres
