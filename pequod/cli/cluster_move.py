"""cluster move: base keys from one home group to another, without losing a write."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from pequod.cli.cluster import Place, PlaceCommand, operated
from pequod.cli.connection import connection_settings
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes

if TYPE_CHECKING:
    from pequod_server.cluster.operating import ClusterEditor

    from pequod.client import AsyncClient
    from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
    from pequod.cluster.servers import ServerEntry

app: Final = typer.Typer()

#: How long a step waits for all servers.
_TAKE_IN_S: Final = 15.0
_ROWS: Final = 500
#: A message of copied rows has one row, or fewer bytes than this.
_MESSAGE_BYTES: Final = 1 << 20
Row = tuple[bytes, bytes]
#: A row, or the key of one that is removed.
Change = tuple[bytes, bytes | None]


class _Page(NamedTuple):
    """Rows that were the same at both homes."""

    first: bytes
    row_count: int
    #: Within this process.
    rows_hash: int


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
    undo: Annotated[bool, typer.Option("--undo", help="End a move that did not come to its end.")] = False,
) -> None:
    """Move a range of base keys to another home group. The cluster's map has to be in etcd.

    \b
    1. The map says that the range moves: homes refuse writes of it. All servers have to have this map.
    2. The rows are copied through the homes, unless `--copied`, and compared.
    3. The map says that the range belongs to the new group; computes forget what they have of it.
    4. When all servers go by that map, the next one has homes take writes of the range again.
    5. The rows in the old database are read once more: they have to be those that were copied.

    Reads go on. Run it again if it was interrupted. Rows stay in the old database; delete them there when you like.
    Programs that write to the database beside Pequod have to be stopped before, and their transactions ended: step 5
    finds what they wrote until then, which is not copied any more, and nothing finds what they write later. A home that
    is not registered must not run: nobody could tell it.
    """  # noqa: D301 - typer's mark of lines that stay as they are
    bounds = argument_bytes(first), argument_bytes(last)
    if place.startswith("static:"):
        fail(ExitCode.REFUSED, "servers do not say in a file which map they go by; a move needs a map in etcd")
    if undo == (to is not None):
        fail(ExitCode.USAGE, "give --to GROUP, or --undo")
    operated(place, lambda editor: _undo(editor, bounds) if to is None else _move(editor, bounds, to, copied))


async def _undo(editor: ClusterEditor, bounds: tuple[bytes, bytes]) -> None:
    from pequod.cluster.edits import moves_within, opened

    known = (await editor.latest()).map
    moving = moves_within(known, *bounds)
    if not moving:
        others = ", ".join(str(home) for home in known.home_ranges if home.moves_to) or "nothing"
        fail(ExitCode.ABSENT, f"no range moves within these bounds; what moves is {others}")
    # A range that has come to its new group takes writes once no server reads it at the old one.
    await _spread(editor, known)
    await _spread(editor, await editor.change(lambda known: opened(known, *bounds)))
    for home in moving:
        print(f"{home}: group {home.group}")


async def _move(editor: ClusterEditor, bounds: tuple[bytes, bytes], group: str, copied: bool) -> None:
    from pequod.cluster.edits import moved, moves_within, moving, opened

    state = await editor.latest()
    _home_of(state, group)
    known = await editor.change(lambda known: moving(known, *bounds, group))
    await _spread(editor, known)
    say(f"version {known.version}: writes of the range are refused")
    state = await editor.state()
    compared: list[tuple[ServerEntry, HomeRange, list[_Page]]] = []
    for home in [one for one in moves_within(known, *bounds) if one.group != group]:
        source = _home_of(state, home.group)
        pages = await _copy(source, _home_of(state, group), home, copied)
        compared.append((source, home, pages))
        count = sum(page.row_count for page in pages)
        print(f"{home}: {count:,} rows {'compared' if copied else 'copied and compared'}, {home.group} to {group}")
    await _spread(editor, await editor.change(lambda known: moved(known, *bounds)))
    done = await editor.change(lambda known: opened(known, *bounds))
    await _spread(editor, done)
    print(f"version {done.version}: the range belongs to {group}")
    for source, home, pages in compared:
        await _refuse_changed(source, home, pages)


async def _spread(editor: ClusterEditor, known: ClusterMap) -> None:
    """Wait until all servers go by a map, or end the command."""
    if late := await editor.taken_in(known.version, _TAKE_IN_S):
        fail(
            ExitCode.REFUSED,
            f"these servers do not go by version {known.version} of the map: {', '.join(late)}; see their logs, and "
            "run the command again, or with --undo",
        )


def _home_of(state: ClusterState, group: str) -> ServerEntry:
    ready = [server for server in state.homes_of(group) if server.is_ready]
    if not ready:
        fail(ExitCode.REFUSED, f"group {group} has no home that is ready")
    return ready[0]


async def _copy(source: ServerEntry, target: ServerEntry, home: HomeRange, copied: bool) -> list[_Page]:
    """Copy the rows of a range, and compare all of them; return them as pages, without the rows."""
    from pequod.client import AsyncClient

    settings = connection_settings()
    async with AsyncClient(source.address, **settings) as old, AsyncClient(target.address, **settings) as new:
        if not copied:
            await _copy_rows(old, new, target, home)
        pages: list[_Page] = []
        first = home.first
        there = _pages(new, home)
        async for rows in _pages(old, home):
            if await anext(there, []) != rows:
                fail(
                    ExitCode.REFUSED, f"{home} is not the same at {target.id} as at {source.id}; nothing has moved yet"
                )
            pages.append(_Page(first, len(rows), hash(tuple(rows))))
            first = rows[-1][0] + b"\0"
        if await anext(there, []):
            fail(
                ExitCode.REFUSED,
                f"{target.id} has keys in {home} that {source.id} does not have; nothing has moved yet",
            )
        return pages


async def _refuse_changed(source: ServerEntry, home: HomeRange, pages: list[_Page]) -> None:
    """End the command if the old home's rows are not those that were copied: programs wrote to its database."""
    from pequod.client import AsyncClient
    from pequod.errors import PequodError
    from pequod.escapes import shown
    from pequod.freshness import Latest

    changed = []
    try:
        async with AsyncClient(source.address, **connection_settings()) as old:
            for page, last in _with_ends(home, pages):
                rows = await old.scan(page.first, last, freshness=Latest())
                if hash(tuple(rows)) != page.rows_hash:
                    changed.append(f"[{shown(page.first)}, {'end' if last is None else shown(last)})")
    except PequodError as error:
        say(f"{source.id} does not answer, so nobody has looked whether programs wrote to its database: {error}")
        return
    if changed:
        fail(
            ExitCode.REFUSED,
            f"programs wrote to the database of {source.id} after its rows were copied; the range has moved without "
            f"what they wrote in {', '.join(changed[:5])}{' and more' if len(changed) > 5 else ''}: write it again "
            "through the new group",
        )


def _with_ends(home: HomeRange, pages: list[_Page]) -> list[tuple[_Page, bytes | None]]:
    """Return pages with where each ends: together they are the whole range, with what was not there then."""
    whole = pages or [_Page(home.first, 0, hash(()))]
    return list(zip(whole, [*[page.first for page in whole[1:]], home.last], strict=True))


async def _copy_rows(old: AsyncClient, new: AsyncClient, target: ServerEntry, home: HomeRange) -> None:
    """Have the target have the rows of the source, and no others: rests of an earlier try go."""
    from asyncio import gather

    async with _writing(target) as write:
        async for rows in _pages(new, home):
            values = await gather(*(old.get(key) for key, _ in rows))
            await write([(key, None) for (key, _), value in zip(rows, values, strict=True) if value is None])
        async for rows in _pages(old, home):
            await write(await _timed(old, rows))


async def _timed(old: AsyncClient, rows: list[Row]) -> list[Change]:
    """Return rows with their deadlines; those that have expired meanwhile are gone."""
    from pequod_server.backing.timed import TimedValue

    batch = old.batch()
    for key, _ in rows:
        batch.ttl(key)
    now_s, found = time.time(), list[Change]()
    for (key, value), left_s in zip(rows, await batch.send(), strict=True):
        if isinstance(left_s, float) and left_s != math.inf:
            found.append((key, TimedValue(value, round((now_s + left_s) * 1000))))
        else:
            # A home may keep no deadlines.
            found.append((key, None if left_s is None else value))
    return found


@asynccontextmanager
async def _writing(target: ServerEntry) -> AsyncIterator[Callable[[Sequence[Change]], Awaitable[None]]]:
    """Yield what writes rows of a range that moves to a home, where clients' writes of it are refused meanwhile."""
    from pequod_server.homes.compute.channel import PeerCredentials
    from pequod_server.homes.messages import write_request

    settings = connection_settings()
    channel = PeerCredentials(
        tls=settings.get("tls", False),
        ca=_path(settings.get("ca")),
        certificate=_path(settings.get("certificate")),
        key=_path(settings.get("key")),
        token=settings.get("token") or "",
        insecure=settings.get("insecure", False),
    ).connect(target.address)

    async def write(changes: Sequence[Change]) -> None:
        for some in _pieces(changes):
            await channel.write(write_request(some, copies=True))

    try:
        yield write
    finally:
        await channel.close()


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)


def _pieces(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield changes in messages that servers take."""
    some: list[Change] = []
    size = 0
    for key, value in changes:
        size += len(key) + len(value or b"")
        if some and size > _MESSAGE_BYTES:
            yield some
            some, size = [], len(key) + len(value or b"")
        some.append((key, value))
    if some:
        yield some


async def _pages(client: AsyncClient, home: HomeRange) -> AsyncIterator[list[Row]]:
    """Yield the rows of a range at the latest state, some at a time."""
    from pequod.freshness import Latest

    first = home.first
    while rows := await client.scan(first, home.last, limit=_ROWS, freshness=Latest()):
        yield list(rows)
        first = rows[-1][0] + b"\0"
