"""Standard output as commands write to it: what cannot be written ends the command and is told, whatever it was doing.

closed             every write fails, and no file that is opened takes its number
a full disk        the command ends with a message and a code of its own
its reader ended   the command ends without a message, as other programs do (`pequod scan | head`)
not UTF-8          characters that the encoding lacks are written as the escapes of their bytes, as in all output
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from pequod.cli.exits import ExitCode

#: The name of the handler of characters that the encoding of standard output lacks.
_AS_BYTES: Final = "pequod.bytes"
#: A command whose reader ended before it: 128 and the number of SIGPIPE, as a shell says of other programs.
_READER_ENDED: Final = 141


class ResultsError(Exception):
    """Results cannot be written.

    It is no OSError: those of files and of connections are told by the commands themselves.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the results: {error.strerror or error}")
        self.has_no_reader = error.errno == errno.EPIPE


class _ResultsWriter(io.BufferedWriter):
    """The bytes of standard output.

    The file below it stays Python's own: an interrupt between its write and its return would have the bytes written
    twice.
    """

    def write(self, data: Any) -> int:
        """Write bytes.

        Raises:
            ResultsError: Bytes cannot be written.
        """
        try:
            return super().write(data)
        except OSError as error:
            raise self._given_up(error) from error

    def flush(self) -> None:
        """Write the bytes that are left; raise as `write`."""
        try:
            super().flush()
        except OSError as error:
            raise self._given_up(error) from error

    def _given_up(self, error: OSError) -> ResultsError:
        # Python writes once more at its end what is left.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
        return ResultsError(error)


@contextmanager
def written_results() -> Iterator[None]:
    """Have what is printed meanwhile written, to the end, or end the process with a message and a code."""
    _open_closed()
    before = sys.stdout
    file = io.FileIO(1, "w", closefd=False)
    encoding = before.encoding if before is not None else "utf-8"
    codecs.register_error(_AS_BYTES, _as_bytes)
    sys.stdout = io.TextIOWrapper(_ResultsWriter(file), encoding, _AS_BYTES, line_buffering=file.isatty())
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except ResultsError as error:
        if error.has_no_reader:
            raise SystemExit(_READER_ENDED) from None
        print(f"pequod: {error}", file=sys.stderr)
        raise SystemExit(ExitCode.UNWRITTEN) from None


def _open_closed() -> None:
    """Open the standard streams that the caller closed, so that no other file has their numbers.

    Results are not lost in silence: nothing can be written to a file that is opened for reading.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115 - for as long as the process lives


def _as_bytes(error: UnicodeError) -> tuple[str, int]:
    """Return the characters that an encoding lacks as `escaped` writes bytes that are no text."""
    assert isinstance(error, UnicodeEncodeError)
    data = error.object[error.start : error.end].encode("utf-8", "surrogateescape")
    return "".join(f"\\x{byte:02x}" for byte in data), error.end
