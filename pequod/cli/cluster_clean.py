"""cluster clean: the rows that moves have left at the homes where their range was before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import Place, PlaceCommand, operated
from pequod.cli.cluster_move import OpenHome
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

app: Final = typer.Typer()


@app.command(
    "clean",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster clean etcd:10.0.0.7:2379/twip 'p|m' 'p}' --dry-run",
        "pequod cluster clean etcd:10.0.0.7:2379/twip 'p|m' 'p}'",
    ),
)
def clean(
    place: Place,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Where the range starts.")],
    last: Annotated[str, typer.Argument(metavar="LAST", help="Where it ends; this key is not in it.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing: say what would be removed.")] = False,
) -> None:
    """Remove the rows of a range from the databases of the home groups that do not have it: what moves have left there.

    Each home refuses to remove what the map gives to it, or what is on its way to it. A range that moves is refused,
    and so is one of no group. Groups beside the database of the range's own group are left alone. A group whose homes
    are away is not asked. Rows that programs keep in these databases by themselves go as well: look with `--dry-run`
    before.
    """
    bounds = argument_bytes(first), argument_bytes(last)
    if place.startswith("static:"):
        fail(ExitCode.REFUSED, "servers do not say in a file which map they go by; this needs a map in etcd")
    operated(place, lambda editor: _clean(editor, bounds, dry_run))


async def _clean(editor: ClusterEditor, bounds: tuple[bytes, bytes], dry_run: bool) -> None:
    from pequod_server.cluster.cleaning import find_rests, remove_rests

    is_clean, what = True, "would be removed" if dry_run else "removed"
    async for rest in (find_rests if dry_run else remove_rests)(editor, bounds, OpenHome):
        is_clean = False
        print(
            f"{rest.part}: {rest.row_count:,} rows {what} at {rest.home.id} of group {rest.home.group}; "
            f"group {rest.part.group} has the range"
        )
    if is_clean:
        say("nothing is left there")
