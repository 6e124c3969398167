"""The files of a lake, wherever they are: in a folder, or in an object store.

A file is there as a whole when `create` has ended without an error, and never changes afterwards. Paths are relative to
the lake, with slashes: `data/main/posts/sort-3f9a01bc77d0-1.parquet`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from pequod_lake.errors import LakeError


class LakeFiles(Protocol):
    """The files of a lake."""

    #: Where they are, for messages.
    name: str

    def create(self, path: str) -> AbstractContextManager[Any]:
        """Write a new file: it is durable when the block ends, and absent if the block fails.

        Raises:
            OSError: It cannot be written.
        """
        ...

    def opened(self, path: str) -> AbstractContextManager[Any]:
        """Give what a reader of Parquet takes for the file.

        Raises:
            OSError: It cannot be opened.
        """
        ...

    def stream(self, path: str) -> AbstractContextManager[Any]:
        """Give the file to be read from its begin to its end.

        Raises:
            OSError: It cannot be opened.
        """
        ...

    def part(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a file, fewer where it ends before.

        Raises:
            OSError: They cannot be read.
        """
        ...

    def size_bytes(self, path: str) -> int | None:
        """Return the size of a file; None where files cannot change and to look is dear.

        Raises:
            OSError: It is not there, or cannot be looked at.
        """
        ...

    def copy(self, old: str, new: str) -> None:
        """Give a file a second name, under which it stays when the first one is removed.

        Raises:
            OSError: It cannot be done.
        """
        ...

    def is_empty(self) -> bool:
        """Return whether nothing is there yet.

        Raises:
            LakeError: It cannot be looked at.
        """
        ...

    def data_path(self) -> str:
        """Return where DuckLake finds the files of rows."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file, if it is there.

        Raises:
            LakeError: It cannot be deleted.
        """
        ...

    def paths(self) -> list[str]:
        """Return the paths of all files of rows.

        Raises:
            LakeError: They cannot be listed.
        """
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write a small file, in the place of one of its name; it need not outlive the machine.

        Raises:
            LakeError: It cannot be written.
        """
        ...

    def listed(self, folder: str) -> list[tuple[str, float]]:
        """Return the paths of all files below a folder, each with the second of its last change by the store's clock.

        Raises:
            LakeError: They cannot be listed.
        """
        ...

    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all files below it, if it is there.

        Raises:
            LakeError: It cannot be deleted.
        """
        ...

    def failure(self, path: str, what: str, error: OSError) -> LakeError:
        """Return the error of a file of which something cannot be done."""
        ...

    def is_unreachable(self, error: BaseException) -> bool:
        """Return whether the store, not the file, is the reason of an error."""
        ...


class FolderFiles:
    """The files of a lake in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = str(folder)

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        """Write a new file, forced to disk."""
        whole = self.folder / path
        whole.parent.mkdir(parents=True, exist_ok=True)
        try:
            with whole.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _sync_folder(whole.parent)
        except BaseException:
            with suppress(OSError):
                whole.unlink(missing_ok=True)
            raise

    @contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """Open the file as Arrow does: of a path it would first find out what kind of a place it names."""
        with pa.OSFile(f"{self.folder}/{path}") as file:
            yield file

    def stream(self, path: str) -> AbstractContextManager[Any]:
        """Open the file."""
        return (self.folder / path).open("rb")

    def part(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a file."""
        with (self.folder / path).open("rb") as file:
            file.seek(offset)
            return file.read(size_bytes)

    def size_bytes(self, path: str) -> int:
        """Return the size of a file."""
        # Not by pathlib: each query asks for each of its files.
        return os.stat(f"{self.folder}/{path}").st_size  # noqa: PTH116 - 2 microseconds in place of 8

    def copy(self, old: str, new: str) -> None:
        """Give a file a second name, without copying it."""
        whole = self.folder / new
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.hardlink_to(self.folder / old)
        _sync_folder(whole.parent)

    def is_empty(self) -> bool:
        """Return whether nothing is there yet."""
        return not any(self.folder.iterdir())

    def data_path(self) -> str:
        """Return where DuckLake finds the files of rows."""
        return f"{self.folder.resolve() / 'data'}/"

    def remove(self, path: str) -> None:
        """Delete a file, if it is there."""
        (self.folder / path).unlink(missing_ok=True)

    def paths(self) -> list[str]:
        """Return the paths of all files of rows."""
        return [path.relative_to(self.folder).as_posix() for path in (self.folder / "data").rglob("*.parquet")]

    def put(self, path: str, content: bytes) -> None:
        """Write a small file beside the one of its name, and then in its place."""
        whole = self.folder / path
        try:
            whole.parent.mkdir(parents=True, exist_ok=True)
            beside = whole.with_name(f".{whole.name}.{secrets.token_hex(4)}")
            beside.write_bytes(content)
            beside.rename(whole)
        except OSError as error:
            raise self.failure(path, "be written", error) from error

    def listed(self, folder: str) -> list[tuple[str, float]]:
        """Return the paths of all files below a folder with the seconds of their last changes."""
        found = list[tuple[str, float]]()
        for path in (self.folder / folder).rglob("*"):
            # Others delete files while these are listed.
            with suppress(FileNotFoundError):
                if path.is_file():
                    found.append((path.relative_to(self.folder).as_posix(), path.stat().st_mtime))
        return found

    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all files below it, if it is there."""
        try:
            shutil.rmtree(self.folder / folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.failure(folder, "be deleted", error) from error

    def failure(self, path: str, what: str, error: OSError) -> LakeError:
        """Return the error of a file of which something cannot be done."""
        return LakeError(f"{self.folder / path} cannot {what}: {error}")

    def is_unreachable(self, error: BaseException) -> bool:  # noqa: ARG002 - a disk that fails is damage
        """Return that it is not: a file that cannot be read from a disk is damaged."""
        return False


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
