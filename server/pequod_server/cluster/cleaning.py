"""Rows that moves have left at the homes where their range was before: found, and removed.

    map     [p|m .. p}) b                    at rest, and all servers go by it
    a       p|moe  p|zoe   <- rests          b       p|moe  p|zoe  p|zed

Each home judges by its own map what it removes: it refuses what is its own, or on its way to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from pequod.cluster.edits import moves_within, parts_of
from pequod.cluster.map import ClusterState, HomeRange
from pequod.cluster.servers import ServerEntry, ServerRole
from pequod.cluster.standing import commands
from pequod.errors import ClusterMapError
from pequod_server.cluster.copying import PAGE_ROWS
from pequod_server.cluster.followed_home import HomeAccess, database_of
from pequod_server.cluster.moving import Bounds, home_of, spread
from pequod_server.cluster.operating import ClusterEditor
from pequod_server.homes.messages import rests_request

OpenHome = Callable[[ServerEntry], HomeAccess]


@dataclass(frozen=True, slots=True)
class Rest:
    """Rows of a range at a home of another group than the range's."""

    #: The range, or the part of it within the bounds, with the group that has it.
    part: HomeRange
    home: ServerEntry
    row_count: int


async def find_rests(editor: ClusterEditor, bounds: Bounds, open_home: OpenHome) -> AsyncIterator[Rest]:
    """Yield what is left of ranges within bounds.

    Raises:
        ClusterMapError: A range moves, no group has it, or servers do not go by the map.
        PequodError: A home does not answer, or refuses.
    """
    async for rest in _each(editor, bounds, open_home, _counted):
        yield rest


async def remove_rests(editor: ClusterEditor, bounds: Bounds, open_home: OpenHome) -> AsyncIterator[Rest]:
    """Remove what is left of ranges within bounds, and yield what was removed.

    Raises:
        ClusterMapError, PequodError: As `find_rests`; what was yielded is gone, and a part of the next one may be.
    """
    async for rest in _each(editor, bounds, open_home, _removed):
        yield rest


async def _each(
    editor: ClusterEditor,
    bounds: Bounds,
    open_home: OpenHome,
    look: Callable[[HomeAccess, HomeRange], AsyncIterator[int]],
) -> AsyncIterator[Rest]:
    state = await editor.latest()
    if moving := moves_within(state.map, *bounds):
        raise ClusterMapError(str(moving[0]), f"it moves: {commands(moving[0])}")
    parts = parts_of(state.map, *bounds)
    # A server that goes by an earlier map may read the rows where they were.
    await spread(editor, state.map)
    for part in parts:
        owner = home_of(state, part.group)
        for entry in _others(state, part.group):
            if await database_of(open_home(entry)) == await database_of(open_home(owner)):
                # They are the owner's.
                continue
            home = open_home(entry)
            try:
                count = 0
                async for some in look(home, part):
                    count += some
            finally:
                await home.close()
            if count:
                yield Rest(part, entry, count)


def _others(state: ClusterState, group: str) -> list[ServerEntry]:
    """Return a home of each other group; one that is not there cannot be asked."""
    groups = {one.group for one in state.servers if ServerRole.HOME in one.roles and one.is_ready} - {group}
    return [home_of(state, other) for other in sorted(groups)]


async def _counted(home: HomeAccess, part: HomeRange) -> AsyncIterator[int]:
    first = part.first
    while rows := await home.scan(first, part.last, PAGE_ROWS):
        yield len(rows)
        first = rows[-1][0] + b"\0"


async def _removed(home: HomeAccess, part: HomeRange) -> AsyncIterator[int]:
    while rows := await home.scan(part.first, part.last, PAGE_ROWS):
        await home.channel.write(rests_request([key for key, _ in rows]))
        yield len(rows)
