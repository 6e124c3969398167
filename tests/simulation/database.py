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
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from pequod_server.backing import Addition, Changes, ConditionalChange, KeyRange, Loaded, Progress, RowChange
from pequod_server.backing.repeated import once_of_addition, once_of_change
from pequod_server.backing.rows import Clip
from pequod_server.backing.store import SequenceHorizon, were_there
from pequod_server.once.memory import RequestIds

from pequod.answers.transacted import Transacted
from pequod.engine.transacting import TransactionLimits, chosen, outcomes_of, reader_of
from pequod.errors import NotNumberError
from pequod.language.conditions import MET, Met, Unmet, holds
from pequod.language.decimals import added
from pequod.language.transactions import Transaction
from tests.simulation.links import ConnectionLostError, End, Network
from tests.simulation.moments import Moment

Rows = dict[bytes, bytes]
#: The name of its machine, where there is one database.
DATABASE: Final = "database"
#: How often the feed says that it is there, and a request is waited for.
PROGRESS_S: Final = 0.5
REQUEST_S: Final = 5.0


class Database:
    """The database.

    Args:
        name: That of its machine.
        load_s: A load takes up to this long before it reads, and up to this long afterwards.
        trickle_s: The feed waits up to this long before each commit.

    Invariants:
        1. ``states[timeline][position]`` are all rows then; ``_logs[timeline][position - 1]`` led to them.
        2. What loads see, ``_visible``, is a position of the present timeline.
    """

    def __init__(
        self, network: Network, random: Random, *, name: str = DATABASE, load_s: float = 0.0, trickle_s: float = 0.0
    ) -> None:
        self.name = name
        self._random = random
        self._load_s = load_s
        self._trickle_s = trickle_s
        self._network = network
        self.timeline = 0
        self.states: list[list[Rows]] = [[{}]]
        #: Where each timeline left the one before it.
        self.forks = [0]
        self._logs: list[list[tuple[RowChange, ...]]] = [[]]
        self._visible = 0
        self._down_until_s = 0.0
        self._stalled_until_s = 0.0
        #: By machines that reach a primary that was replaced: its timeline, and until when.
        self._old: dict[str, tuple[int, float]] = {}
        #: The feed has forgotten the log before this position.
        self._kept_from = 0
        #: Since when the database has been at its moments.
        self._moments: list[tuple[float, Moment]] = [(0.0, Moment(0, 0))]
        self._moved = asyncio.Event()
        #: What its writes with request ids gave; a failover loses none of them.
        self.request_ids = RequestIds(clock=lambda: asyncio.get_running_loop().time())
        network.listen(name, self._serve)

    @property
    def position(self) -> int:
        """The position of the last commit."""
        return len(self._logs[-1])

    @property
    def moment(self) -> Moment:
        """The moment of the last commit."""
        return Moment(self.timeline, self.position)

    def moment_at(self, time_s: float) -> Moment:
        """Return the moment at which the database was at some time."""
        at = bisect_right(self._moments, time_s, key=lambda entry: entry[0])
        return self._moments[max(at - 1, 0)][1]

    @property
    def rows(self) -> Rows:
        """The rows after the last commit."""
        return self.states[-1][-1]

    def commit(self, changes: Sequence[RowChange]) -> int:
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

    def committed(self, change: RowChange, after: Moment) -> list[Moment]:
        """Return the moments after one whose commits have a change, also those that are lost."""
        found = []
        for timeline in range(after.timeline, self.timeline + 1):
            start = after.position if timeline == after.timeline else self.forks[timeline]
            log = self._logs[timeline]
            found += [Moment(timeline, at) for at in range(start + 1, len(log) + 1) if change in log[at - 1]]
        return found

    def commits(self, after: Moment) -> Iterator[tuple[Moment, Rows, Rows]]:
        """Yield the moments after one, also those that are lost, each with the rows before it and those at it."""
        for timeline in range(after.timeline, self.timeline + 1):
            start = after.position if timeline == after.timeline else self.forks[timeline]
            for at, (before, rows) in enumerate(pairwise(self.states[timeline][start:]), start + 1):
                yield Moment(timeline, at), before, rows

    def _show(self, timeline: int, position: int) -> None:
        if timeline == self.timeline:
            self._visible = max(self._visible, position)
            self._move()

    def _move(self) -> None:
        if self._moments[-1][1] != self.moment:
            self._moments.append((asyncio.get_running_loop().time(), self.moment))
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    # Faults.

    def stall(self, seconds: float) -> None:
        """Hold the feed up."""
        self._stalled_until_s = asyncio.get_running_loop().time() + seconds

    def lose_feed(self) -> None:
        """Forget how far the feeds were: they begin anew."""
        self._kept_from = self.position + 1

    def fail_over(self, lost: int, down_s: float, cut_off: Sequence[str] = (), cut_off_s: float = 0.0) -> None:
        """Go on as another timeline, without the last ``lost`` commits, after a while in which nothing answers.

        Args:
            cut_off: Machines that reach the old primary for a while: it answers, and cannot commit any more.
        """
        # A standby of this timeline has at least what the timeline began with.
        fork = max(self.position - lost, self.forks[-1])
        loop = asyncio.get_running_loop()
        for machine in cut_off:
            self._old[machine] = self._timeline_for(machine), loop.time() + cut_off_s
        loop.call_later(cut_off_s, self._move)
        self.states.append(self.states[-1][: fork + 1])
        self._logs.append(self._logs[-1][:fork])
        self.forks.append(fork)
        self.timeline += 1
        self._visible = fork
        self._kept_from = 0
        self._down_until_s = loop.time() + down_s
        self._move()

    def _timeline_for(self, machine: str) -> int:
        """Return the timeline of the primary that a machine reaches."""
        timeline, until_s = self._old.get(machine, (self.timeline, 0.0))
        return timeline if asyncio.get_running_loop().time() < until_s else self.timeline

    # What it answers.

    async def _serve(self, end: End) -> None:
        match await end.receive(REQUEST_S):
            case ("load", ranges):
                self._be_up(end)
                await self._take_a_while(self._load_s)
                loaded = self._load(ranges, self._timeline_for(end.there))
                await self._take_a_while(self._load_s)
                self._be_up(end)
                end.send(loaded)
            case ("write", changes):
                self._be_up(end)
                await self._be_primary(end)
                end.send(await self._write(changes))
            case ("write_if", change):
                self._be_up(end)
                await self._be_primary(end)
                end.send(await self._write_if(change))
            case ("transact", transaction, limits):
                self._be_up(end)
                await self._be_primary(end)
                end.send(await self._transact(transaction, limits))
            case ("add", addition):
                self._be_up(end)
                await self._be_primary(end)
                end.send(await self._add(addition))
            case ("ids", since):
                self._be_up(end)
                await self._be_primary(end)
                end.send((self.timeline, await self.request_ids.page(since)))
            case ("take ids", parts):
                self._be_up(end)
                await self._be_primary(end)
                await self.request_ids.take(parts)
                end.send((self.timeline, None))
            case ("latest",):
                self._be_up(end)
                await self._be_primary(end)
                # A commit without changes: what was replaced cannot do this.
                end.send((self.timeline, self.commit([])))
            case ("position",):
                self._be_up(end)
                timeline = self._timeline_for(end.there)
                end.send((timeline, len(self._logs[timeline])))
            case ("feed", since, timeline):
                self._be_up(end)
                await self._feed(end, since, timeline)
            case message:
                raise AssertionError(f"the database does not know {message!r}")

    async def _take_a_while(self, most_s: float) -> None:
        if most_s:
            await asyncio.sleep(most_s * self._random.random() ** 2)

    def _be_up(self, end: End) -> None:
        is_down = asyncio.get_running_loop().time() < self._down_until_s
        if is_down and self._timeline_for(end.there) == self.timeline:
            raise ConnectionLostError("the database is down")

    async def _be_primary(self, end: End) -> None:
        """Return if the machine reaches the primary; one that was replaced waits for a standby that has left it."""
        if self._timeline_for(end.there) != self.timeline:
            while self._timeline_for(end.there) != self.timeline:
                await self._moved.wait()
            raise ConnectionLostError("the database was replaced")

    def _load(self, ranges: Sequence[KeyRange], timeline: int) -> tuple[int, Loaded]:
        clip, visible = Clip(ranges), self._visible_of(timeline)
        found = sorted(row for row in self.states[timeline][visible].items() if clip.holds(row[0]))
        return timeline, Loaded(tuple(found), SequenceHorizon(visible, visible))

    def _visible_of(self, timeline: int) -> int:
        return self._visible if timeline == self.timeline else len(self._logs[timeline])

    async def _write(self, changes: Sequence[RowChange]) -> tuple[int, tuple[int, list[bool]]]:
        found = were_there(changes, self.states[self.timeline][-1])
        timeline, position = self.timeline, self.commit(changes)
        await self._be_visible(timeline, position)
        return timeline, (position, found)

    async def _write_if(self, change: ConditionalChange) -> tuple[int, tuple[int, Met | Unmet]]:
        def decide() -> Met | Unmet:
            present = self.states[self.timeline][-1].get(change.key)
            is_met = holds(change.condition, present)
            self.commit([RowChange(change.key, change.value)] if is_met else [])
            return MET if is_met else Unmet(present)

        timeline = self.timeline
        outcome = self.request_ids.once(once_of_change(change), decide)
        position = self.position
        await self._be_visible(timeline, position)
        return timeline, (position, outcome)

    async def _transact(
        self, transaction: Transaction, limits: TransactionLimits
    ) -> tuple[int, tuple[int, Transacted]]:
        rows, timeline = self.states[self.timeline][-1], self.timeline
        held, commands = chosen(transaction, rows.get)
        outcomes, written = outcomes_of(commands, reader_of(rows), limits)
        position = self.commit([RowChange(*one) for one in written.items()])
        await self._be_visible(timeline, position)
        return timeline, (position, Transacted(held, outcomes))

    async def _add(self, addition: Addition) -> tuple[int, tuple[int, bytes | None]]:
        """Add to a value; one that is no number stays, and the sum is None."""
        key, delta, _ = addition
        timeline = self.timeline

        def add() -> bytes:
            total = added(key, self.states[timeline][-1].get(key), delta)
            self.commit([RowChange(key, total)])
            return total

        try:
            total = self.request_ids.once(once_of_addition(addition), add)
        except NotNumberError:
            return timeline, (self.position, None)
        position = self.position
        await self._be_visible(timeline, position)
        return timeline, (position, total)

    async def _be_visible(self, timeline: int, position: int) -> None:
        while timeline == self.timeline and self._visible < position:
            await self._moved.wait()
        if timeline != self.timeline:
            raise ConnectionLostError("the database has failed over")

    async def _feed(self, end: End, since: int | None, timeline: int) -> None:
        machine = end.there
        present = self._timeline_for(machine)
        log = self._logs[present]
        if since is not None and (timeline != present or since < self._kept_from):
            end.send(("lost", "the log has no such position any more"))
            return
        timeline, position = present, len(log) if since is None else since
        if since is None and timeline == self.timeline:
            # As a new slot waits for the transactions that are open: what a load does not see has to be delivered.
            await self._be_visible(timeline, position)
            self._kept_from = min(self._kept_from, position)
        end.send(("stands", timeline, position, tuple(self.forks[: timeline + 1])))
        while not end.is_lost:
            await self._be_unstalled(end, timeline, position)
            if timeline != self._timeline_for(machine):
                raise ConnectionLostError("the database has failed over")
            if position < len(log):
                await self._take_a_while(self._trickle_s)
                if timeline != self._timeline_for(machine):
                    continue
                position += 1
                is_seen = position <= self._visible_of(timeline)
                end.send(Changes(position, position, log[position - 1], are_seen=is_seen))
                continue
            end.send(self._progress(timeline, position))
            try:
                async with asyncio.timeout(PROGRESS_S):
                    await self._moved.wait()
            except TimeoutError:
                continue

    async def _be_unstalled(self, end: End, timeline: int, position: int) -> None:
        """Wait for the end of a stall; a stalled feed still says that it is there."""
        loop = asyncio.get_running_loop()
        while loop.time() < self._stalled_until_s:
            end.send(self._progress(timeline, position))
            await asyncio.sleep(min(PROGRESS_S, self._stalled_until_s - loop.time()))

    def _progress(self, timeline: int, position: int) -> tuple[str, Progress, float | None]:
        """Return the message that the feed has come to a position, and since when that is everything, if it is."""
        # Not `seen` beyond the feed's own position: it is about changes that the feed delivered.
        visible = self._visible_of(timeline)
        is_all = position == len(self._logs[timeline])
        fresh_s = asyncio.get_running_loop().time() if is_all else None
        return "progress", Progress(position, SequenceHorizon(visible, visible)), fresh_s
