"""load and dump: rows between a server and a file."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from enum import StrEnum
from pathlib import PurePath
from stat import S_ISREG
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, Protocol, assert_never

import typer

from pequod.cli.connection import DEFAULT_TARGET, Target, connected
from pequod.cli.data import First, Last, Prefix, key_range
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.parquet import read_parquet, write_parquet
from pequod.cli.rowfiles import BadRow, FileError, Row, TimedRow, read_csv, read_json_lines, write_csv, write_json_lines
from pequod.cli.streams import STANDARD, reading, writing
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod.cli.loading import RowLoader
    from pequod.cli.progress import Advance

app: Final = typer.Typer()


class Format(StrEnum):
    """The format of a file of rows."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


_SUFFIXES: Final = {
    ".csv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".parquet": Format.PARQUET,
}

_LOAD_HELP: Final = """Write the rows of a file, as `pequod dump` makes them: CSV, JSON lines or Parquet.

\b
.csv              a header, key,value; cells have the escapes of `pequod scan` (\\t, \\n, \\\\, \\xff)
.jsonl, .ndjson   {"key": ..., "value": ...} on each line, as `pequod scan --json` prints them
.parquet          the columns key and value, binary or text
A third column, or member, expires_ms has the deadline of a row, in milliseconds since 1970, as pequod dump writes it.

A row that cannot be read ends the command with its line and exit code 3: nothing of its batch and behind it is
written. Rows that the server refuses are shown and counted, all others are written; exit code 3 as well.
"""

FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format", "-f", help="Whatever the name of the file ends in; without it, standard streams are JSON lines."
    ),
]


@app.command(
    "load",
    help=_LOAD_HELP,
    epilog=examples(
        "pequod load posts.csv",
        "pequod load posts.parquet --skip-bad",
        "zcat posts.jsonl.gz | pequod load -",
        "pequod dump '' -t old:7744 | pequod load - -t new:7744 --skip-computed",
    ),
)
def load(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - is standard input.")],
    format_: FormatOption = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows that cannot be read, and say how many.")
    ] = False,
    skip_computed: Annotated[
        bool, typer.Option("--skip-computed", help="Leave out rows that a join of the server computes itself.")
    ] = False,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Rows a message.")] = 1000,
    window: Annotated[int, typer.Option("--window", min=1, help="Messages under way at once.")] = 4,
    target: Target = DEFAULT_TARGET,
) -> None:
    """Write the rows of a file."""
    from pequod.cli.loading import RowLoader
    from pequod.cli.progress import progress_bar
    from pequod.errors import PequodError

    kind = format_of(file, format_)
    started = time.monotonic()
    with connected(target) as client, reading(file) as source:
        loader = RowLoader(client, rows_max=batch, window=window, skip_computed=skip_computed)
        try:
            size = _size(source)
            with progress_bar(f"loading {file}", size) as advance:
                loader.load(
                    reader_of(kind)(source),
                    lambda rows: advance(0 if size is None else source.tell(), rows),
                    skip_bad=skip_bad,
                )
        except FileError as error:
            _show_problems(loader, file, kind)
            fail(ExitCode.REFUSED, _why_ended(error, loader, file, kind))
        except (PequodError, KeyboardInterrupt):
            say(f"{_rows(loader.stored)} written before it ended, and perhaps some of those under way")
            raise
    _show_problems(loader, file, kind)
    parts = [f"{_rows(loader.stored)} loaded in {time.monotonic() - started:.1f} s"]
    parts += [f"{loader.malformed} left out that cannot be read"] if loader.malformed else []
    parts += [f"{loader.computed} left out that joins compute"] if loader.computed else []
    parts += [f"{loader.expired} left out that have expired"] if loader.expired else []
    parts += [f"{loader.refused} refused by the server"] if loader.refused else []
    summary = "; ".join(parts)
    if loader.refused:
        fail(ExitCode.REFUSED, summary)
    say(summary)


@app.command(
    "dump",
    epilog=examples(
        "pequod dump '' -o everything.parquet",
        "pequod dump --prefix 'p|' -o posts.csv",
        "pequod dump --prefix 'p|' | gzip > posts.jsonl.gz",
    ),
)
def dump(
    first: First,
    last: Last = None,
    prefix: Prefix = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is standard output.")
    ] = STANDARD,
    format_: FormatOption = None,
    target: Target = DEFAULT_TARGET,
) -> None:
    """Write the rows of a range, computed ones included, to a file: CSV, JSON lines or Parquet (see `pequod load`).

    The range may be of any size. The file appears when it is complete, and replaces one of its name only then. Keys
    that expire have their deadlines beside them.
    """
    from pequod.cli.deadlines import has_deadlines, timed
    from pequod.cli.progress import progress_bar

    kind = format_of(output, format_)
    start, end = key_range(first, last, prefix)
    started = time.monotonic()
    is_on_screen = output == STANDARD and sys.stdout.isatty()
    with connected(target) as client, closing(client.scan_iter(start, end)) as rows:
        may_expire = has_deadlines(client)
        counted = _Counted(timed(client, rows) if may_expire else ((*row, 0) for row in rows))
        try:
            with writing(output) as file, nullcontext(None) if is_on_screen else progress_bar("dumping", None) as bar:
                counted.advance = bar
                writer_of(kind)(counted, file, may_expire=may_expire)
        except FileError as error:
            fail(ExitCode.REFUSED, str(error))
    say(f"{_rows(counted.row_count)} dumped in {time.monotonic() - started:.1f} s")


class _Counted:
    """Rows, counted as they pass."""

    def __init__(self, rows: Iterable[TimedRow]) -> None:
        self._rows = rows
        self.row_count = 0
        self.advance: Advance | None = None

    def __iter__(self) -> Iterator[TimedRow]:
        for row in self._rows:
            self.row_count += 1
            yield row
            if self.advance is not None and self.row_count % 1000 == 0:
                self.advance(0, self.row_count)


def format_of(path: str, wanted: Format | None) -> Format:
    """Return the format of a file: as wanted, else as its name ends; or end the command."""
    if wanted is not None:
        return wanted
    if path == STANDARD:
        return Format.JSONL
    suffix = PurePath(path).suffix
    if suffix not in _SUFFIXES:
        fail(ExitCode.USAGE, f"{path} ends in none of {', '.join(_SUFFIXES)}; say --format csv, jsonl or parquet")
    return _SUFFIXES[suffix]


def reader_of(kind: Format) -> Callable[[BinaryIO], Iterator[Row | BadRow]]:
    """Return what reads rows of a format."""
    match kind:
        case Format.CSV:
            return read_csv
        case Format.JSONL:
            return read_json_lines
        case Format.PARQUET:
            return read_parquet
    assert_never(kind)


class WriteRows(Protocol):
    """Writes rows in a format."""

    def __call__(self, rows: Iterable[TimedRow], file: BinaryIO, /, *, may_expire: bool) -> None:
        """Write rows, with their deadlines if they may have some."""
        ...


def writer_of(kind: Format) -> WriteRows:
    """Return what writes rows in a format."""
    match kind:
        case Format.CSV:
            return write_csv
        case Format.JSONL:
            return write_json_lines
        case Format.PARQUET:
            return write_parquet
    assert_never(kind)


def _size(file: BinaryIO) -> int | None:
    """Return the size of a plain file, None for anything else."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if S_ISREG(status.st_mode) else None


def _why_ended(error: FileError, loader: RowLoader, file: str, kind: Format) -> str:
    if error.bad is None:
        where, advice = file, ""
    else:
        where, advice = _place(file, kind, error.bad.place), "; mend it, or leave such rows out with --skip-bad"
    if loader.unsent_place is not None:
        written = f"{_rows(loader.stored)} written, nothing from {_place('', kind, loader.unsent_place)} on"
    else:
        written = f"{_rows(loader.stored)} written"
    return f"{where}: {error}{advice} ({written})"


def _show_problems(loader: RowLoader, file: str, kind: Format) -> None:
    for problem in loader.problems:
        say(f"{_place(file, kind, problem.place)}: {problem.reason}")
    hidden = loader.malformed + loader.refused - len(loader.problems)
    if hidden:
        say(f"... and {hidden} more")


def _place(file: str, kind: Format, place: int) -> str:
    word = "row" if kind is Format.PARQUET else "line"
    return f"{file}, {word} {place}" if file else f"{word} {place}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
