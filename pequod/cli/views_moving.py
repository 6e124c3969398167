"""views split and balance: parts are cut and handed over while managers go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, connection_settings
from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples
from pequod.cli.views_file import Database, Server, ViewsFile, run_with, views_of

if TYPE_CHECKING:
    from pequod_views import Target
    from pequod_views.load import PartLoad
    from pequod_views.parts import Place

SPLIT_EPILOG: Final = examples(
    "pequod views split views.toml karma",
    "pequod views split views.toml karma --at 'karma|k'",
)
BALANCE_EPILOG: Final = examples("pequod views balance views.toml --seconds 5")

Seconds = Annotated[
    float, typer.Option("--seconds", min=0.1, max=3600, metavar="SECONDS", help="How long changes are counted.")
]


def split(
    file: ViewsFile,
    name: Annotated[str, typer.Argument(metavar="VIEW", help="The name of the view.")],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="KEY", help="The first key of the new part; else the middle of what changes."),
    ] = None,
    seconds: Seconds = 2.0,
    database: Database = None,
    target: Server = None,
) -> None:
    r"""Split a part of a view in two, while managers go on, and print where.

    Without --at it is the part with the most changes, at the key with as many before it as behind it. The new part is
    as far as the old one, so nothing is read again. KEY is as other commands print keys, with escapes such as \x00.
    Exit code 3 if the part cannot be split there.
    """
    from pequod.escapes import escaped

    views = views_of(file)
    view = next((one for one in views.views if one.name == name), None)
    if view is None:
        fail(ExitCode.USAGE, f"the file has no view {name!r}")

    async def work(place: Target) -> str:
        from pequod_views.moving import PartMover
        from pequod_views.sampling import split_key

        from pequod.client import AsyncClient
        from pequod.escapes import unescaped

        mover = PartMover(place)
        if at is not None:
            key = unescaped(at)
        else:
            async with AsyncClient(target or views.server or DEFAULT_TARGET, **connection_settings()) as client:
                key = await split_key(client, mover, view, seconds)
        part = await mover.split(name, key)
        return f"{name}: the part from {escaped(part.first)} ends at {escaped(key)}, where a new one begins"

    print(run_with(views, database, work))


def balance(file: ViewsFile, seconds: Seconds = 2.0, database: Database = None) -> None:
    """Hand parts to other managers, so that each has as many rows to write, and print which.

    Each manager keeps its number of parts. Split a hot part first if it is alone most of a manager's load.
    """
    from pequod.escapes import escaped

    views = views_of(file)

    async def work(place: Target) -> tuple[list[PartLoad], dict[Place, str]]:
        from pequod_views.sampling import balance as balance_parts

        return await balance_parts(place, seconds)

    loads, moved = run_with(views, database, work)
    for part in loads:
        if part.place in moved:
            rate = f"{part.rows_per_s:,.0f} rows/s"
            print(f"{part.place[0]} from {escaped(part.place[1])} ({rate}): {part.owner} -> {moved[part.place]}")
    if not moved:
        print("nothing to move: no exchange of parts makes the greatest load a tenth smaller")
