"""data check, repair, export, import and backup: the folder of `pequod serve --data`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final, TypeVar

import typer

from pequod.cli.connection import Json
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.rowfiles import BadRow, FileError, Row, TimedRow
from pequod.cli.serve import server_module
from pequod.cli.streams import reading, writing
from pequod.cli.teaching import examples
from pequod.cli.text import counted, json_line
from pequod.cli.transfer import FormatOption, format_of, reader_of, writer_of

if TYPE_CHECKING:
    from pequod_server.data.tools import FolderContents

T = TypeVar("T")

_HELP: Final = """Check, mend and copy the folder of `pequod serve --data`.

\b
All but backup are for a folder that no server has open.
    pequod data check ./data           reads everything, and changes nothing
    pequod data backup ./data ./copy   also while a server has it open
A backup is a folder: to restore it, start a server on it.
"""

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the data.")]


@app.command("check", epilog=examples("pequod data check ./data"))
def check(folder: Folder, json: Json = False) -> None:
    """Read every row of a folder, and change nothing.

    Exit code 3 if something is damaged, or rows are missing that were written; the message names the file.
    """
    found = _done(lambda: server_module("data.tools").check(folder))
    if json:
        print(json_line(found._asdict()))
    else:
        print(f"{folder}: {_numbers(found)}, at change {found.position}: all is right")


@app.command("repair", epilog=examples("pequod data repair ./data"))
def repair(folder: Folder, json: Json = False) -> None:
    """Make the files of a folder anew of all rows that can be read; the damaged files stay beside them.

    Rows that cannot be read are missing afterwards, and rows may be older than the last that were acknowledged: a
    backup is better. A new timeline begins, so that tokens of lost changes are refused. A folder in which nothing is
    damaged stays as it is.
    """
    found = _done(lambda: server_module("data.tools").repair(folder))
    if json:
        kept = None if found.kept is None else str(found.kept)
        print(json_line(found.contents._asdict() | {"holes": found.hole_count, "damaged": kept}))
        return
    if found.kept is None:
        print(f"{folder}: {_numbers(found.contents)}: nothing is damaged, and nothing was changed")
        return
    holes = f"; rows are missing at {counted(found.hole_count, 'place')}" if found.hole_count else ""
    keys = counted(found.contents.key_count, "key")
    print(
        f"{folder}: {keys}{holes}. What cannot be read is missing, and all behind it in a log. The damaged files are "
        f"in {found.kept}: keep them until you have compared with a backup"
    )


@app.command("export", epilog=examples("pequod data export ./data rows.parquet", "pequod data export ./data - | wc -l"))
def export(
    folder: Folder,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write; - is standard output.")],
    format_: FormatOption = None,
) -> None:
    """Write the rows of a folder, with their deadlines, into a file, as `pequod dump` writes those of a server.

    Joins are not in it, nor are rows that are due; `pequod data backup` copies all of them.
    """
    write = writer_of(format_of(file, format_))

    def run() -> None:
        with writing(file) as target:
            tools = server_module("data.tools")
            write(tools.rows_of(folder), target, may_expire=tools.has_deadlines(folder))

    _done(run)


@app.command("import", epilog=examples("pequod data import ./data rows.csv"))
def import_(
    folder: Folder,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to read; - is standard input.")],
    format_: FormatOption = None,
) -> None:
    """Put the rows of a file into a folder, which is made if it is not there; other rows stay.

    Rows are written some at a time. One that cannot be read, or that a join of the folder computes, ends the command
    with exit code 3; those before it may be written, and the same file may be put again. Rows that are due go when a
    server starts.
    """
    read = reader_of(format_of(file, format_))
    with reading(file) as source:
        count = _done(lambda: server_module("data.tools").put_rows(folder, _rows(read, source, file)))
    say(f"{counted(count, 'row')} imported")


@app.command("backup", epilog=examples("pequod data backup ./data /backups/monday"))
def backup(
    folder: Folder,
    to: Annotated[Path, typer.Argument(metavar="TO", help="The folder of the copy; it must not be there yet.")],
    json: Json = False,
) -> None:
    """Copy a folder as it is at one moment, also while a server has it open. The server goes on.

    The copy has a name of its own: tokens of the folder's server are refused by a server of the copy.
    """
    found = _done(lambda: server_module("data.tools").backup(folder, to))
    if json:
        print(json_line(found._asdict()))
    else:
        print(f"{to}: {_numbers(found)}")


def _numbers(found: FolderContents) -> str:
    return f"{counted(found.key_count, 'key')}, {counted(found.join_count, 'join')}"


def _rows(read: Callable[[BinaryIO], Iterable[Row | BadRow]], source: BinaryIO, file: str) -> Iterator[TimedRow]:
    for row in read(source):
        if isinstance(row, BadRow):
            fail(ExitCode.REFUSED, f"{file}: row {row.place}: {row.reason}")
        yield row.key, row.value, row.expires_ms


def _done(work: Callable[[], T]) -> T:
    """Do something with a folder, or end the command with what is wrong with it."""
    errors = server_module("data.errors")
    try:
        return work()
    except (errors.FolderError, FileError) as error:
        fail(ExitCode.REFUSED, str(error))
    except OSError as error:
        fail(ExitCode.UNWRITTEN, str(error))
