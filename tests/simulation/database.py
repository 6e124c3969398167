"""A database on a machine of its own: it commits at positions, has a feed, and forks when it fails over.

    commit    the log grows by one entry, at the next position; loads see it a little later, as in PostgreSQL
    load      rows as of what is visible
    feed      the log from a position on, in order; `stall` holds it up, `lose_feed` lets it begin anew
    failover  a standby takes over that has not got the end of the log:   1 --2--3--4--5 (lost)
                                                                                 \\--4'--5'     the next timeline

All that ever was committed is kept, for the checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from pequod_server.backing import Change, Changes, KeyRange, Loaded, Progress
from pequod_server.backing.rows import Clip
from pequod_server.backing.store import SequenceHorizon

from tests.simulation.links import ConnectionLostError, End, Network

Rows = dict[bytes, bytes]
#: The name of its machine.
DATABASE: Final = "database"
#: How often the feed says that it is there, and a request is waited for.
PROGRESS_S: Final = 0.5
REQUEST_S: Final = 5.0


class Database:
    """The database.

    Args:
        load_s: A load takes up to this long before it reads, and up to this long afterwards.
        trickle_s: The feed waits up to this long before each commit.

    Invariants:
        1. ``states[timeline][position]`` are all rows then; ``_logs[timeline][position - 1]`` led to them.
        2. What loads see, ``_visible``, is a position of the present timeline.
    """

    def __init__(self, network: Network, random: Random, *, load_s: float = 0.0, trickle_s: float = 0.0) -> None:
        self._random = random
        self._load_s = load_s
        self._trickle_s = trickle_s
        self._network = network
        self.timeline = 0
        self.states: list[list[Rows]] = [[{}]]
        #: Where each timeline left the one before it.
        self.forks = [0]
        self._logs: list[list[tuple[Change, ...]]] = [[]]
        self._visible = 0
        self._down_until_s = 0.0
        self._stalled_until_s = 0.0
        #: The feed has forgotten the log before this position.
        self._kept_from = 0
        self._moved = asyncio.Event()
        network.listen(DATABASE, self._serve)

    @property
    def position(self) -> int:
        """The position of the last commit."""
        return len(self._logs[-1])

    @property
    def rows(self) -> Rows:
        """The rows after the last commit."""
        return self.states[-1][-1]

    def commit(self, changes: Sequence[Change]) -> int:
        """Commit changes and return the position."""
        rows = dict(self.rows)
        for change in changes:
            if change.value is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.value
        self.states[-1].append(rows)
        self._logs[-1].append(tuple(changes))
        if wait_s := self._random.choice([0.0, 0.0, 0.001, 0.02, 0.2]):
            asyncio.get_running_loop().call_later(wait_s, self._show, self.timeline, self.position)
        else:
            self._show(self.timeline, self.position)
        self._move()
        return self.position

    def positions_of(self, change: Change, timeline: int, after: int) -> list[int]:
        """Return the positions above ``after`` whose commits have this change."""
        log = self._logs[timeline]
        return [position for position in range(after + 1, len(log) + 1) if change in log[position - 1]]

    def _show(self, timeline: int, position: int) -> None:
        if timeline == self.timeline:
            self._visible = max(self._visible, position)
            self._move()

    def _move(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # Faults.

    def stall(self, seconds: float) -> None:
        """Hold the feed up."""
        self._stalled_until_s = asyncio.get_running_loop().time() + seconds

    def lose_feed(self) -> None:
        """Forget how far the feeds were: they begin anew."""
        self._kept_from = self.position + 1

    def fail_over(self, lost: int, down_s: float) -> None:
        """Go on as another timeline, without the last ``lost`` commits, after a while in which nothing answers."""
        fork = max(self.position - lost, 0)
        self.states.append(self.states[-1][: fork + 1])
        self._logs.append(self._logs[-1][:fork])
        self.forks.append(fork)
        self.timeline += 1
        self._visible = fork
        self._kept_from = 0
        self._down_until_s = asyncio.get_running_loop().time() + down_s
        self._move()

    # What it answers.

    async def _serve(self, end: End) -> None:
        match await end.receive(REQUEST_S):
            case ("load", ranges):
                self._be_up()
                await self._take_a_while(self._load_s)
                loaded = self._load(ranges)
                await self._take_a_while(self._load_s)
                self._be_up()
                end.send(loaded)
            case ("write", changes):
                self._be_up()
                end.send(await self._write(changes))
            case ("position",):
                self._be_up()
                end.send((self.timeline, self.position))
            case ("feed", since, timeline):
                self._be_up()
                await self._feed(end, since, timeline)
            case message:
                raise AssertionError(f"the database does not know {message!r}")

    async def _take_a_while(self, most_s: float) -> None:
        if most_s:
            await asyncio.sleep(most_s * self._random.random() ** 2)

    def _be_up(self) -> None:
        if asyncio.get_running_loop().time() < self._down_until_s:
            raise ConnectionLostError("the database is down")

    def _load(self, ranges: Sequence[KeyRange]) -> tuple[int, Loaded]:
        clip = Clip(ranges)
        found = sorted(row for row in self.states[-1][self._visible].items() if clip.holds(row[0]))
        return self.timeline, Loaded(tuple(found), SequenceHorizon(self._visible, self._visible))

    async def _write(self, changes: Sequence[Change]) -> tuple[int, int]:
        timeline, position = self.timeline, self.commit(changes)
        await self._be_visible(timeline, position)
        return timeline, position

    async def _be_visible(self, timeline: int, position: int) -> None:
        while timeline == self.timeline and self._visible < position:
            await self._moved.wait()
        if timeline != self.timeline:
            raise ConnectionLostError("the database has failed over")

    async def _feed(self, end: End, since: int | None, timeline: int) -> None:
        if since is not None and (timeline != self.timeline or since < self._kept_from):
            end.send(("lost", "the log has no such position any more"))
            return
        timeline, position = self.timeline, self.position if since is None else since
        if since is None:
            # As a new slot waits for the transactions that are open: what a load does not see has to be delivered.
            await self._be_visible(timeline, position)
            self._kept_from = min(self._kept_from, position)
        end.send(("stands", timeline, position, tuple(self.forks)))
        while not end.is_lost:
            await self._be_unstalled(end, position)
            if timeline != self.timeline:
                raise ConnectionLostError("the database has failed over")
            if position < self.position:
                await self._take_a_while(self._trickle_s)
                if timeline != self.timeline:
                    continue
                position += 1
                changes = self._logs[-1][position - 1]
                end.send(Changes(position, position, changes, are_seen=position <= self._visible))
                continue
            end.send(self._progress(position))
            try:
                async with asyncio.timeout(PROGRESS_S):
                    await self._moved.wait()
            except TimeoutError:
                continue

    async def _be_unstalled(self, end: End, position: int) -> None:
        """Wait for the end of a stall; a stalled feed still says that it is there."""
        loop = asyncio.get_running_loop()
        while loop.time() < self._stalled_until_s:
            end.send(self._progress(position))
            await asyncio.sleep(min(PROGRESS_S, self._stalled_until_s - loop.time()))

    def _progress(self, position: int) -> Progress:
        # Not `seen` beyond the feed's own position: it is about changes that the feed delivered.
        return Progress(position, SequenceHorizon(self._visible, self._visible))
