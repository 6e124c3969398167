"""Files that commands read and write; `-` is a standard stream. A file appears when it is complete, or never."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from pequod.cli.exits import ExitCode, fail

STANDARD: Final = "-"


@contextmanager
def reading(path: str) -> Iterator[BinaryIO]:
    """Open a file for reading, or end the command with the error."""
    if path == STANDARD:
        yield sys.stdin.buffer
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context(Path(path).open("rb"))
        except OSError as error:
            fail(ExitCode.USAGE, f"cannot read the file: {error}")
        yield file


@contextmanager
def writing(path: str) -> Iterator[BinaryIO]:
    """Open a file for writing: under another name beside it, and renamed at the end if there was no error.

    If the path is not a plain file, such as a pipe or a device, it is written to directly.
    """
    if path == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # The real path: a link keeps leading to the new file.
    final = Path(path).resolve()
    try:
        if final.exists() and not final.is_file():
            with final.open("wb") as file:
                yield file
            return
        partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        fail(ExitCode.REFUSED, f"cannot write the file: {error}")
