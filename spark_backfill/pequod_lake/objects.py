"""The files of a lake in an object store, by Arrow's file systems: S3, Google's, Azure's, HDFS.

An upload to a store is whole or absent, and there are neither names for half a file nor second names for one. Nothing
is looked at before it is read: the catalog has the size and the checksum of the footer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from pyarrow import ArrowException, fs

from pequod_lake.errors import LakeError, LakeUnreachableError

#: How long a request may take, and how often it is tried.
_REQUEST_S: Final = 30.0
_CONNECT_S: Final = 5.0
_TRIES: Final = 4
_OPTIONS: Final = {"region", "endpoint_override", "scheme"}


class ObjectFiles:
    """The files of a lake in an object store.

    Args:
        filesystem: A file system of Arrow.
        root: The lake's place in it: the bucket and a path.
        name: The address that users gave.
    """

    def __init__(self, filesystem: Any, root: str, name: str) -> None:
        self.filesystem = filesystem
        self.name = name
        self._root = root.strip("/")

    def whole(self, path: str) -> str:
        """Return the path of a file in the file system."""
        return f"{self._root}/{path}"

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        """Upload a new file."""
        stream = self.filesystem.open_output_stream(self.whole(path))
        try:
            yield stream
            stream.close()
        except BaseException:
            # Arrow knows no end of an upload but its completion. Nobody knows the name, so it goes again, now or in a
            # sweep.
            with suppress(OSError):
                stream.close()
            with suppress(LakeError):
                self.remove(path)
            raise

    @contextmanager
    def opened(self, path: str) -> Iterator[Any]:
        """Open the file for reading in any order."""
        with self.filesystem.open_input_file(self.whole(path)) as file:
            yield file

    @contextmanager
    def stream(self, path: str) -> Iterator[Any]:
        """Open the file for reading from its begin to its end."""
        with self.filesystem.open_input_stream(self.whole(path)) as file:
            yield file

    def part(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return bytes of a file."""
        with self.opened(path) as file:
            return bytes(file.read_at(size_bytes, offset))

    def size_bytes(self, path: str) -> int | None:  # noqa: ARG002 - no file changes
        """Return nothing: to look would be a request for each file and query, and nothing changes an object."""
        return None

    def copy(self, old: str, new: str) -> None:
        """Have the store copy a file: each run has files of its own, so each is deleted with its run."""
        self.filesystem.copy_file(self.whole(old), self.whole(new))

    def is_empty(self) -> bool:
        """Return whether nothing is there yet."""
        with self._listed():
            return not self.filesystem.get_file_info(fs.FileSelector(self._root, allow_not_found=True))

    def data_path(self) -> str:
        """Return where DuckLake finds the files of rows."""
        return f"{self.name.partition('?')[0].rstrip('/')}/data/"

    def remove(self, path: str) -> None:
        """Delete a file, if it is there.

        Raises:
            LakeError: It cannot be deleted.
        """
        try:
            self.filesystem.delete_file(self.whole(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise self.failure(path, "be deleted", error) from error

    def paths(self) -> list[str]:
        """Return the paths of all files of rows.

        Raises:
            LakeError: They cannot be listed.
        """
        return [path for path, _ in self.listed("data") if path.endswith(".parquet")]

    def put(self, path: str, content: bytes) -> None:
        """Upload a small file, in the place of one of its name."""
        try:
            with self.filesystem.open_output_stream(self.whole(path)) as stream:
                stream.write(content)
        except OSError as error:
            raise self.failure(path, "be written", error) from error

    def listed(self, folder: str) -> list[tuple[str, float]]:
        """Return the paths of all files below a folder with the seconds of their last changes."""
        return [(one.path.removeprefix(f"{self._root}/"), one.mtime_ns / 1e9) for one in self._below(folder)]

    def remove_folder(self, folder: str) -> None:
        """Delete all files below a folder: a store has no others."""
        for one in self._below(folder):
            self.remove(one.path.removeprefix(f"{self._root}/"))

    def _below(self, folder: str) -> list[Any]:
        selector = fs.FileSelector(self.whole(folder), recursive=True, allow_not_found=True)
        with self._listed():
            return [one for one in self.filesystem.get_file_info(selector) if one.type == fs.FileType.File]

    def failure(self, path: str, what: str, error: OSError) -> LakeError:
        """Return the error of a file of which something cannot be done."""
        return LakeUnreachableError(f"file {self.name.partition('?')[0]}/{path} cannot {what}: {_told(error)}")

    def is_unreachable(self, error: BaseException) -> bool:
        """Return whether the store, not the file, is the reason of an error."""
        return isinstance(error, OSError) and not isinstance(error, FileNotFoundError) and "AWS Error" in str(error)

    @contextmanager
    def _listed(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LakeUnreachableError(f"the files of {self.name} cannot be listed: {_told(error)}") from error


def object_files(location: str) -> ObjectFiles:
    """Return the files at an address such as `s3://bucket/lake`.

    Credentials are those that the store's own tools take: for S3 `AWS_ACCESS_KEY_ID` and the others of its environment,
    its files of settings, or the machine's role.

    Raises:
        LakeError: There is no such store, or the address is not right.
    """
    try:
        parts = urlsplit(location)
        if parts.scheme == "s3":
            return ObjectFiles(_s3(parts.netloc, parts.query), f"{parts.netloc}{parts.path}", location)
        filesystem, root = fs.FileSystem.from_uri(location)
        return ObjectFiles(filesystem, root, location)
    except (OSError, ValueError, ArrowException) as error:
        raise LakeError(f"{location} cannot be used: {_told(error)}") from error


def _s3(bucket: str, query: str) -> Any:
    options = dict(parse_qsl(query))
    if unknown := set(options) - _OPTIONS:
        raise ValueError(f"{min(unknown)!r} is no option; there are {', '.join(sorted(_OPTIONS))}")
    given = options.get("endpoint_override") or _environment("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    scheme, _, endpoint = given.rpartition("://")
    region = options.get("region") or _environment("AWS_REGION", "AWS_DEFAULT_REGION")
    return fs.S3FileSystem(
        region=region or ("us-east-1" if endpoint else fs.resolve_s3_region(bucket)),
        endpoint_override=endpoint or None,
        scheme=options.get("scheme") or scheme or "https",
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        # A small file is one request, not three.
        allow_delayed_open=True,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    )


def _environment(*names: str) -> str:
    return next((value for name in names if (value := os.environ.get(name))), "")


def _told(error: BaseException) -> str:
    """Return an error with what to do about it, where that is known."""
    text = str(error).strip()
    if "ACCESS_DENIED" in text or "credentials" in text.lower() or "INVALID_ACCESS_KEY" in text:
        return (
            f"{text}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to those of a user who may read and write there"
        )
    if "NO_SUCH_BUCKET" in text:
        return f"{text}; make the bucket first"
    return text
