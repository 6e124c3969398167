"""What the commands of views share: the file, the database, and how work with it ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from pequod.cli.exits import ExitCode, fail

if TYPE_CHECKING:
    from pequod_views import Target, ViewFile

T = TypeVar("T")

ViewsFile = Annotated[Path, typer.Argument(metavar="FILE", help="The views, in TOML.")]
Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="DATABASE",
        envvar="PEQUOD_VIEWS_DATABASE",
        help="sqlite:PATH, postgresql://... or mariadb://..., instead of the file's.",
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--target", "-t", metavar="HOST:PORT", envvar="PEQUOD_TARGET", help="The server, instead of the file's."
    ),
]


def views_of(file: Path) -> ViewFile:
    """Return the views of a file; an error of it is a message and an exit code."""
    from pequod_views.definition import parse_views

    from pequod.errors import PequodError

    text = text_of(file, "pequod views --help")
    try:
        return parse_views(text)
    except PequodError as error:
        fail(ExitCode.USAGE, str(error))


def text_of(file: Path, shown_by: str) -> str:
    """Return what is in a file of views; an error is a message and an exit code.

    Args:
        shown_by: The command that shows such a file.
    """
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        fail(ExitCode.USAGE, f"cannot read the views: {file}: {reason}; `{shown_by}` shows such a file")


async def until_told(work: Coroutine[Any, Any, None]) -> None:
    """Await work until Ctrl-C or SIGTERM."""
    import asyncio
    import signal

    task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def run_with(
    views: ViewFile,
    database: str | None,
    work: Callable[[Target], Coroutine[Any, Any, T]],
    *,
    missing: Literal["made", "refused"] = "refused",
) -> T:
    """Run work with the database; an error of it is a message and an exit code.

    Args:
        missing: Whether a database that is a file is made.
    """
    import asyncio

    from pequod_views import TargetAwayError, TargetMissingError, ViewFileError, open_target

    name = database or views.database
    if name is None:
        fail(ExitCode.USAGE, "name the database: `database` in the file, or --database")
    try:
        place = open_target(name, missing=missing)
    except ViewFileError as error:
        fail(ExitCode.USAGE, str(error))

    async def work_there() -> T:
        try:
            return await work(place)
        finally:
            await place.close()

    try:
        return asyncio.run(work_there())
    except TargetMissingError as error:
        fail(ExitCode.REFUSED, str(error))
    except TargetAwayError as error:
        fail(ExitCode.UNREACHABLE, str(error))
