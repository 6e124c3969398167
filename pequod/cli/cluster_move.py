"""cluster move: base keys from one home group to another while they are written, without losing a write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.cluster import Place, PlaceCommand, operated
from pequod.cli.connection import connection_settings
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes
from pequod.errors import PequodError

if TYPE_CHECKING:
    from pequod_server.cluster.followed_home import Rows
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.cluster.servers import ServerEntry

app: Final = typer.Typer()


@app.command(
    "move",
    cls=PlaceCommand,
    epilog=examples(
        "pequod cluster move etcd:10.0.0.7:2379/twip 'p|m' 'p}' --to b",
        "pequod cluster move etcd:10.0.0.7:2379/twip 'p|m' 'p}' --to b --copied",
        "pequod cluster move etcd:10.0.0.7:2379/twip 'p|m' 'p}' --undo",
    ),
)
def move(
    place: Place,
    first: Annotated[str, typer.Argument(metavar="FIRST", help="Where the range starts.")],
    last: Annotated[str, typer.Argument(metavar="LAST", help="Where it ends; this key is not in it.")],
    to: Annotated[str | None, typer.Option("--to", metavar="GROUP", help="The home group that it goes to.")] = None,
    copied: Annotated[bool, typer.Option("--copied", help="The rows are there already: compare them only.")] = False,
    undo: Annotated[
        bool, typer.Option("--undo", help="In place of --to: end a move that did not come to its end.")
    ] = False,
) -> None:
    """Move a range of base keys to another home group while it is written. The cluster's map has to be in etcd.

    \b
    1. The rows are copied through the homes, page by page, and compared; what is written meanwhile is copied, too.
    2. Homes refuse writes of the range, the last changes are copied, and the map gives the range to the new group.
    3. When all servers go by that map, homes take writes of the range again: the command says how long that took.
    4. The old home is asked once more whether programs wrote to its database beside Pequod.

    Reads go on. If it was interrupted, it says where the range is: then the same command goes on, and
    `pequod cluster move PLACE FIRST LAST --undo`, without --to, ends the move. Until step 2, writes go on as before.
    With `--copied`, writes are refused while all rows are compared. Rows stay in the old database until
    `pequod cluster clean` removes them. What programs write to the old database in step 1 is copied; stop them before
    step 2: what they write later is named in step 4, or by nobody. A home that is not registered must not run: nobody
    could tell it.
    """  # noqa: D301 - typer's mark of lines that stay as they are
    bounds = argument_bytes(first), argument_bytes(last)
    if place.startswith("static:"):
        fail(ExitCode.REFUSED, "servers do not say in a file which map they go by; a move needs a map in etcd")
    if undo == (to is not None):
        fail(ExitCode.USAGE, "give --to GROUP, or --undo without --to")
    operated(
        place, lambda editor: _undo(editor, bounds) if to is None else move_range(editor, bounds, to, copied=copied)
    )


async def _undo(editor: ClusterEditor, bounds: tuple[bytes, bytes]) -> None:
    from asyncio import CancelledError

    from pequod_server.cluster.moving import undo

    from pequod.cluster.edits import moves_within

    try:
        done = await undo(editor, bounds)
    except (PequodError, CancelledError):
        await _say_how_it_stands(editor, bounds, "", has_begun=True)
        raise
    for line in done:
        print(line)
    if not done:
        others = ", ".join(map(str, moves_within((await editor.latest()).map, b"", None)))
        told = f"no range moves within these bounds; what moves is {others}" if others else "no range moves"
        fail(ExitCode.ABSENT, told)


async def move_range(editor: ClusterEditor, bounds: tuple[bytes, bytes], group: str, *, copied: bool = False) -> None:
    """Move a range, and print what is done."""
    from asyncio import CancelledError

    from pequod_server.cluster.moving import Move, WrittenBesideError

    move = Move(editor, bounds, group, OpenHome, print, say)
    try:
        await (move.run_copied() if copied else move.run())
    except WrittenBesideError as error:
        fail(ExitCode.REFUSED, str(error))
    except (PequodError, CancelledError) as error:
        has_begun = move.begun > 0 or isinstance(error, CancelledError)
        await _say_how_it_stands(editor, bounds, group, has_begun=has_begun)
        raise


async def _say_how_it_stands(
    editor: ClusterEditor, bounds: tuple[bytes, bytes], group: str, *, has_begun: bool
) -> None:
    """Say what the map says of a range after a command did not come to its end, and what to do.

    Args:
        group: The group to which it was to move; empty: its move was to end.
        has_begun: False: the map was not changed; then a range that moves elsewhere, or not at all, is not told of.
    """
    from pequod.cluster.edits import moves_within, parts_of
    from pequod.cluster.standing import standing

    try:
        known = (await editor.latest()).map
        for home in parts_of(known, *bounds) if has_begun else moves_within(known, *bounds):
            if has_begun or group in (home.moves_to, home.copies_to):
                say(standing(home, group))
    except PequodError as error:
        if has_begun:
            say(f"how far the move is, is not known: {error}; `pequod cluster status` shows it")


class OpenHome:
    """What reads and writes at one home, by the options before the command."""

    def __init__(self, entry: ServerEntry) -> None:
        from pequod_server.homes.compute.channel import PeerCredentials

        from pequod.client import AsyncClient

        settings = connection_settings()
        self.entry = entry
        self.channel = PeerCredentials(
            tls=settings.get("tls", False),
            ca=_path(settings.get("ca")),
            certificate=_path(settings.get("certificate")),
            key=_path(settings.get("key")),
            token=settings.get("token") or "",
            insecure=settings.get("insecure", False),
        ).connect(entry.address)
        self._client = AsyncClient(entry.address, **settings)

    async def scan(self, first: bytes, last: bytes | None, limit: int | None = None) -> Rows:
        """Return the first rows of a range at the latest state."""
        from pequod.freshness import Latest

        return list(await self._client.scan(first, last, limit=limit, freshness=Latest()))

    async def close(self) -> None:
        """End connections."""
        await self.channel.close()
        await self._client.close()


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
