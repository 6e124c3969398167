"""Where a server's snapshots are: one file that each save replaces, or a folder with the latest of them.

    snapshot_file      pequod.snapshot
    snapshot_folder    20261128T060000.000Z.snapshot   20261128T070000.000Z.snapshot   lock

Names of files in a folder sort by the time of the save. A name never sorts before that of an earlier save, though the
clock is set back. One server has a folder at a time, since it removes what it does not keep.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from pequod.errors import SettingError, SnapshotError
from pequod_server.config import ServerConfig
from pequod_server.snapshots.files import try_place, unfinished_of

_NAME: Final = re.compile(r"\d{8}T\d{6}\.\d{3}Z\.snapshot")
_FORMAT: Final = "%Y%m%dT%H%M%S.%f"
_LOCK: Final = "lock"


class SnapshotPlace(Protocol):
    """Where snapshots are."""

    @property
    def path(self) -> Path:
        """The file or the folder, for messages."""

    def try_it(self) -> None:
        """See whether a snapshot could be written, and change nothing.

        Raises:
            SnapshotError: It could not.
        """

    def take(self) -> None:
        """Have the place for this server alone, until `leave`, and remove what a save left that was killed.

        Raises:
            SnapshotError: Another server has it, or no snapshot could be written there.
        """

    def leave(self) -> None:
        """Give the place free."""

    def latest(self) -> Path | None:
        """Return the file from which a server starts, None before the first one."""

    def next(self, saved_s: float) -> Path:
        """Return the file for a snapshot of a moment, in seconds since 1970."""

    def drop_oldest(self) -> list[Path]:
        """Remove the files beyond those that are kept; return them."""


class OneFile:
    """A file that each save replaces."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def try_it(self) -> None:
        """See whether a snapshot could be written; what a killed save left goes.

        Raises:
            SnapshotError: It could not.
        """
        try_place(self.path)

    #: Two servers with one file are found out when both write.
    take = try_it

    def leave(self) -> None:
        """Do nothing: the file is locked only while it is written."""

    def latest(self) -> Path | None:
        """Return the file, None if it is not there."""
        return self.path if self.path.exists() else None

    def next(self, saved_s: float) -> Path:  # noqa: ARG002 - there is one
        """Return the file."""
        return self.path

    def drop_oldest(self) -> list[Path]:
        """Return nothing: there is one file."""
        return []


class SnapshotFolder:
    """A folder that has the latest snapshots, and is one server's.

    Args:
        keep: How many files are kept.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self._keep = keep
        self._lock: int | None = None

    def try_it(self) -> None:
        """See whether a snapshot could be written there, or whether the folder could be made.

        Raises:
            SnapshotError: It could not.
        """
        place = next(one for one in (self.path, *self.path.absolute().parents) if one.exists())
        try:
            with tempfile.NamedTemporaryFile(dir=place):
                pass
        except OSError as error:
            raise self._error("no snapshot could be written there", error) from error

    def take(self) -> None:
        """Make the folder if it is not there, lock it, and remove what a save left that was killed.

        Raises:
            SnapshotError: Another server has it, or no snapshot could be written there.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for left in self.path.glob(unfinished_of(Path("*.snapshot")).name):
                left.unlink()
        except BlockingIOError:
            self.leave()
            raise SnapshotError(str(self.path), "another server has it; give each a folder of its own") from None
        except OSError as error:
            raise self._error("no snapshot could be written there", error) from error
        self.try_it()

    def leave(self) -> None:
        """Give the folder free."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def latest(self) -> Path | None:
        """Return the latest file, None before the first one."""
        return next(reversed(self._files()), None)

    def next(self, saved_s: float) -> Path:
        """Return a file that sorts behind those that are there."""
        moment, latest = datetime.fromtimestamp(saved_s, UTC), self.latest()
        if latest is not None and _name_of(moment) <= latest.name:
            written = latest.name.partition("Z")[0] + "000"
            moment = datetime.strptime(written, _FORMAT).replace(tzinfo=UTC) + timedelta(milliseconds=1)
        return self.path / _name_of(moment)

    def drop_oldest(self) -> list[Path]:
        """Remove the oldest files beyond the number that is kept; return them."""
        old = self._files()[: -self._keep]
        try:
            for path in old:
                path.unlink()
        except OSError as error:
            raise self._error("old snapshots cannot be removed", error) from error
        return old

    def _files(self) -> list[Path]:
        """Return the snapshots that are there, the oldest first."""
        try:
            return sorted(one for one in self.path.iterdir() if _NAME.fullmatch(one.name))
        except OSError as error:
            raise self._error("it cannot be read", error) from error

    def _error(self, what: str, error: OSError) -> SnapshotError:
        return SnapshotError(str(self.path), f"{what}: {error.strerror or error}")


def _name_of(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03}Z.snapshot"


def place_of(config: ServerConfig) -> SnapshotPlace | None:
    """Return where the settings have snapshots, None if nowhere.

    Raises:
        SettingError: The settings do not go together.
    """
    if config.snapshot_file is not None and config.snapshot_folder is not None:
        raise SettingError(
            "snapshot_folder", "snapshots are in it or in one file: give snapshot_folder or snapshot_file"
        )
    if config.snapshot_folder is not None:
        return SnapshotFolder(config.snapshot_folder, config.snapshot_keep)
    if config.snapshot_keep != ServerConfig.model_fields["snapshot_keep"].default:
        raise SettingError("snapshot_keep", "one file is kept, or none; give snapshot_folder, or leave it out")
    if config.snapshot_file is not None:
        return OneFile(config.snapshot_file)
    if config.snapshot_every_s:
        raise SettingError("snapshot_every_s", "there is no place for snapshots; give snapshot_folder or snapshot_file")
    return None
