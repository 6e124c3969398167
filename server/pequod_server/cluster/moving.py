"""A move of base keys from one home group to another, while clients write them.

    map 5  copying    pages, changes and request ids are copied; writes go to the old homes
    map 6  closed     the old homes refuse writes; the last changes and ids are copied  |  writes are refused
    map 7  moved      all servers read the range at the new group                       |
    map 8  opened     the new homes take writes

The number of the first map names the move. A command that begins it again has another number: then neither the map nor
the new home takes anything of the earlier command. A command that ends before map 7 has moved nothing. After it, the
range is where it belongs, and is to be opened.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final

from pequod.cluster import edits
from pequod.cluster.map import ClusterMap, ClusterState
from pequod.cluster.servers import ServerEntry
from pequod.errors import ClusterMapError, PequodError
from pequod.escapes import shown
from pequod_server.cluster.copying import RangeCopy
from pequod_server.cluster.followed_home import HomeAccess, database_of
from pequod_server.cluster.operating import ClusterEditor

#: How long a step waits for all servers.
_TAKE_IN_S: Final = 15.0
#: How long writes are refused before the range has moved; after that they are taken at the old homes again.
_CLOSED_S: Final = 5.0
#: Keys in a message.
_NAMED: Final = 5

Bounds = tuple[bytes, bytes | None]


def _silent(_: str) -> None:
    """Tell nobody."""


class LateServersError(ClusterMapError):
    """Servers do not go by a map."""

    def __init__(self, version: int, late: Collection[str]) -> None:
        super().__init__(
            f"version {version} of the map",
            f"these servers do not go by it: {', '.join(late)}; see their logs",
        )


class WrittenBesideError(PequodError):
    """The range has moved without what programs wrote to the old database."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that is done."""

    version: int
    #: From the moment at which the map was closed until all servers take writes again, in seconds; 0: nothing moved.
    refused_s: float


class Move:
    """Moves a range.

    Args:
        open_home: Connects with a home.
        tell: Tells people what is done.
        note: Tells people how far it is.
    """

    #: The version of the map in which it began; 0: it has not, and the map is as it was.
    begun: int = 0

    def __init__(
        self,
        editor: ClusterEditor,
        bounds: Bounds,
        group: str,
        open_home: Callable[[ServerEntry], HomeAccess],
        tell: Callable[[str], None] = _silent,
        note: Callable[[str], None] = _silent,
    ) -> None:
        self._editor = editor
        self._bounds = bounds
        self._group = group
        self._open = open_home
        self._tell = tell
        self._note = note
        self._copies: list[RangeCopy] = []

    async def run(self) -> Moved:
        """Copy, compare and switch.

        Raises:
            ClusterMapError: The map does not let it, servers do not go by it, or rows differ.
            PequodError: A home or the coordinator does not answer, or refuses.
        """
        known = await self._changed(edits.copying)
        await spread(self._editor, known)
        if edits.moves_of(known, known.version):
            self._note(f"version {known.version}: rows are copied while writes are taken")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._editor.followed())
            await self._begin(known, stack)
            for copy in self._copies:
                await self._refuse_one_database(copy)
                await copy.copy()
                await copy.compare()
                self._tell_of(copy, "copied and compared")
            for copy in self._copies:
                await copy.come_near()
            return await self._switched(known.version)

    async def run_copied(self) -> Moved:
        """Compare rows that were copied by other means, while writes are refused, and switch.

        Raises:
            ClusterMapError, PequodError: As `run`.
        """
        begun_s = time.monotonic()
        known = await self._changed(edits.moving)
        await spread(self._editor, known)
        self._note(f"version {known.version}: writes of the range are refused")
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._editor.followed())
            await self._begin(known, stack)
            for copy in self._copies:
                await copy.compare()
                self._tell_of(copy, "compared")
                if not await self._is_one_database(copy):
                    await copy.carry_ids()
            return await self._moved(known.version, begun_s)

    async def _changed(self, edit: Callable[[ClusterMap, bytes, bytes | None, str], ClusterMap]) -> ClusterMap:
        """Change the map and return it, if all groups of the move have a home that is ready."""
        state = await self._editor.latest()
        changed = edit(state.map, *self._bounds, self._group)
        for group in (self._group, *(home.group for home in edits.moves_of(changed, changed.version))):
            home_of(state, group)
        begun = await self._editor.change(lambda known: edit(known, *self._bounds, self._group))
        self.begun = begun.version
        return begun

    def _tell_of(self, copy: RangeCopy, what: str) -> None:
        meanwhile = f", and {copy.counts.changes:,} changes meanwhile" if copy.counts.changes else ""
        self._tell(f"{copy.home}: {copy.counts.rows:,} rows {what}{meanwhile}, {copy.home.group} to {self._group}")

    async def _begin(self, known: ClusterMap, stack: AsyncExitStack) -> None:
        """Follow a home of each range that is to come."""
        state = await self._editor.state()
        for home in edits.moves_of(known, known.version):
            old, new = self._open(home_of(state, home.group)), self._open(home_of(state, self._group))
            copy = RangeCopy(home, old, new)
            stack.push_async_callback(copy.close)
            await copy.start()
            self._copies.append(copy)

    async def _refuse_one_database(self, copy: RangeCopy) -> None:
        """Pass if a copy goes to another database: in one and the same, it would put old values over new ones."""
        if await self._is_one_database(copy):
            raise ClusterMapError(
                str(copy.home),
                f"groups {copy.home.group} and {self._group} are beside one database, which has the rows: there is "
                "nothing to copy, so run the command again with --copied",
            )

    async def _is_one_database(self, copy: RangeCopy) -> bool:
        return await database_of(self._open(copy.new.entry)) == copy.database

    async def _switched(self, move: int) -> Moved:
        """Close the range, copy what is left, and have it come; if that fails, writes are taken where they were."""
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(_CLOSED_S):
                if self._copies:
                    known = await self._editor.change(lambda known: edits.closed(known, move))
                    await spread(self._editor, known, {copy.home.group for copy in self._copies})
                for copy in self._copies:
                    await copy.come_to_end()
        except TimeoutError:
            await self._reopen(move)
            raise ClusterMapError(
                f"version {move} of the map",
                f"the last changes were not copied within {_CLOSED_S:g} s; nothing has moved, and writes are taken "
                "as before: run the command again",
            ) from None
        except PequodError:
            await self._reopen(move)
            raise
        return await self._moved(move, begun_s)

    async def _reopen(self, move: int) -> None:
        """Have the old homes take writes again, if the coordinator answers."""
        with suppress(PequodError):
            await self._editor.change(lambda known: edits.reopened(known, move))

    async def _moved(self, move: int, begun_s: float) -> Moved:
        if self._copies:
            await spread(self._editor, await self._editor.change(lambda known: edits.moved(known, move)))
        done = await self._editor.change(lambda known: edits.opened(known, *self._bounds))
        await spread(self._editor, done)
        refused_s = time.monotonic() - begun_s if self._copies else 0.0
        refused = f"; its writes were refused for {refused_s * 1000:,.0f} ms at the most" if self._copies else ""
        self._tell(f"version {done.version}: the range belongs to {self._group}{refused}")
        await self._look_back()
        return Moved(done.version, refused_s)

    async def _look_back(self) -> None:
        """See that no program has written to the old databases after the last change was copied.

        Raises:
            WrittenBesideError: One has.
        """
        for copy in self._copies:
            name = copy.old.entry.id
            try:
                keys = await copy.lost()
            except PequodError as error:
                self._note(
                    f"{name} does not answer, so nobody has looked whether programs wrote to its database: {error}"
                )
                continue
            if keys:
                named = ", ".join(map(shown, keys[:_NAMED])) + (" and more" if len(keys) > _NAMED else "")
                raise WrittenBesideError(
                    f"programs wrote to the database of {name} after its rows were copied; the range has moved without "
                    f"what they wrote in {named}: write it again through the new group"
                )


async def undo(editor: ClusterEditor, bounds: Bounds) -> list[str]:
    """End moves within a range where they are; return these ranges with their groups, none if nothing moves.

    Raises:
        PequodError: Servers do not go by the map, or the coordinator does not answer.
    """
    known = (await editor.latest()).map
    moving = edits.moves_within(known, *bounds)
    if not moving:
        return []
    # A range that has come to its new group takes writes once no server reads it at the old one.
    await spread(editor, known)
    await spread(editor, await editor.change(lambda known: edits.opened(known, *bounds)))
    return [f"{home}: group {home.group}" for home in moving]


async def spread(editor: ClusterEditor, known: ClusterMap, groups: Collection[str] | None = None) -> None:
    """Wait until all servers, or only the homes of some groups, go by a map.

    Raises:
        LateServersError: Some do not.
    """
    within_s = _TAKE_IN_S if groups is None else _CLOSED_S / 2
    if late := await editor.taken_in(known.version, within_s, groups):
        raise LateServersError(known.version, late)


def home_of(state: ClusterState, group: str) -> ServerEntry:
    """Return a home of a group.

    Raises:
        ClusterMapError: None is ready.
    """
    ready = [server for server in state.homes_of(group) if server.is_ready]
    if not ready:
        raise ClusterMapError(f"home group {group}", "it has no home that is ready")
    return ready[0]
