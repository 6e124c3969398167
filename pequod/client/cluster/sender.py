"""Batches over the servers of a cluster: divided by server, sent elsewhere if one does not answer, put together again.

    send -> divided -> part -> node -> results of the part -> the whole, once all are there
                        ^        | does not answer
                        |        v
                        `--- reads: the next node in rendezvous order; writes: only with ids, or if not applied
                             after all nodes: a pause, and from the beginning

Parts for one node keep the order of their sending. So do the writes of a home group, wherever they go: those that wait
hold up later ones, and those under way at one node hold up any that would go to another.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, Protocol

from pequod.client.cluster.dividing import DividedBatch, divided, taken_apart, unloaded, writes_of
from pequod.client.cluster.node import Node
from pequod.client.cluster.routes import Nodes, Routed, Routes, latest_of
from pequod.client.columns import Columns, Reply, written_keys
from pequod.client.retry import pause_s
from pequod.client.stream import Deliver
from pequod.errors import ClosedError, DeadlineExceededError, NotHomeError, PequodError, UnavailableError


class Learning(Routed, Protocol):
    """A cluster that learns its map."""

    is_closed: bool

    def learn(self) -> None:
        """Learn the map, if it is not known yet."""

    def learn_newer(self, version: int) -> None:
        """See that a map of at least this version is known soon."""


@dataclass(slots=True, eq=False)
class BatchPart:
    """Some commands of a batch, on their way."""

    whole: DividedBatch
    columns: Columns
    positions: Sequence[int]
    #: Sends the columns to a node.
    send: Callable[[Node, Columns, Deliver, float], None]
    #: The nodes that it went to since the last pause, and the number of pauses.
    tried: set[Node] = field(default_factory=set)
    pauses: int = 0
    #: Whether it has waited for writes that are under way at another node.
    has_waited: bool = False
    #: The home group of its writes when they were sent.
    group: str = ""
    #: The nodes in whose place it is where it is.
    lenders: Sequence[Node] = ()
    #: Its reads have been sent elsewhere: only its writes wait for the reply.
    is_moved: bool = False


class ClusterSender:
    """Sends batches over a cluster.

    Invariants:
        1. Until the map is known, all batches wait in ``_early``.
        2. While writes of a home group wait in ``_held``, in the order of their sending, later ones do not pass them.
        3. Writes of one home group are under way at one node.
    """

    def __init__(self, cluster: Learning) -> None:
        self._cluster: Final = cluster
        self._early: deque[tuple[BatchPart, asyncio.TimerHandle]] = deque()
        self._numbers = count()
        #: By home group, writes during a pause, and the end of the pause.
        self._held: dict[str, tuple[list[BatchPart], asyncio.TimerHandle]] = {}
        #: By home group, the node where writes are under way, and how many parts.
        self._writing: dict[str, tuple[Node, int]] = {}
        #: Reads during a pause.
        self._paused: dict[BatchPart, asyncio.TimerHandle] = {}
        #: Parts with reads under way, by node.
        self._under_way: dict[Node, set[BatchPart]] = {}

    def send(self, columns: Columns, deliver: Deliver, deadline: float | None = None) -> None:
        """Send a batch in the order of sending; see `Sender.send`."""
        self._begin(columns, deliver, deadline, Node.send)

    def send_reached(self, columns: Columns, deliver: Deliver, deadline: float) -> None:
        """Send reads that ask for levels: each node knows whether they are likely to wait."""
        self._begin(columns, deliver, deadline, Node.send_reached)

    send_waiting = send_reached

    def _begin(
        self,
        columns: Columns,
        deliver: Deliver,
        deadline: float | None,
        send: Callable[[Node, Columns, Deliver, float], None],
    ) -> None:
        if self._cluster.is_closed:
            deliver(ClosedError())
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + self._cluster.timeout_s if deadline is None else deadline
        whole = DividedBatch(len(columns), deliver, due, next(self._numbers))
        part = BatchPart(whole, columns, range(len(columns)), send)
        if not columns:
            deliver(Reply(0, 0, 0, []))
        elif self._cluster.routes is None:
            self._early.append((part, loop.call_at(due, self._end_late, part)))
            self._cluster.learn()
        else:
            self._divide(part, self._cluster.routes)

    def go_on(self) -> None:
        """Send what has waited for the map."""
        early, self._early = self._early, deque()
        for part, timer in early:
            timer.cancel()
            assert self._cluster.routes is not None, "it is known now"
            self._divide(part, self._cluster.routes)

    def refuse_early(self, error: PequodError) -> None:
        """Fail what has waited for the map, which cannot be had."""
        early, self._early = self._early, deque()
        for part, timer in early:
            timer.cancel()
            self._fail(part, error)

    def move_reads(self, node: Node) -> None:
        """Send the reads under way at a node that does not answer elsewhere, to nodes that do."""
        for part in tuple(self._under_way.get(node, ())):
            if not part.is_moved:
                part.is_moved = True
                self._try_reads(part, node)

    # On the way.

    def _divide(self, part: BatchPart, routes: Routes) -> None:
        """Send a part that was nowhere yet, each command to its node."""
        for node, columns, positions in divided(part.columns, routes.reader, routes.writer):
            self._go(part if columns is part.columns else BatchPart(part.whole, columns, positions, part.send), node)

    def _go(self, part: BatchPart, node: Node | None) -> None:
        columns = part.columns
        has_writes = columns.has_writes()
        if has_writes and self._must_wait(part, node):
            return
        if node is None:
            self._pause(part, UnavailableError(self._cluster.target, "no server of it has the role", is_unapplied=True))
            return
        if part.send is not Node.send:
            self._go_by_level(part, node)
            return
        part.tried.add(node)
        if has_writes:
            assert self._cluster.routes is not None, "the part was routed"
            part.lenders = self._cluster.routes.lenders(columns, node)
            node.writes += 1
            self._writing[part.group] = node, self._writing.get(part.group, (node, 0))[1] + 1
            for lender in part.lenders:
                lender.lent += 1
        if columns.has_reads():
            self._under_way.setdefault(node, set()).add(part)
        part.send(node, columns, partial(self._settle, part, node), part.whole.deadline)

    def _go_by_level(self, part: BatchPart, node: Node) -> None:
        """Send reads with levels: those that are likely to wait do not delay the others."""
        columns = part.columns
        is_reached = [node.has_reached(columns.overrides.get(at, columns.freshness)) for at in range(len(columns))]
        for reached, some, positions in taken_apart(columns, is_reached):
            mine = [part.positions[at] for at in positions]
            send = Node.send_reached if reached else Node.send_waiting
            rest = BatchPart(part.whole, some, mine, send, {*part.tried, node}, part.pauses)
            self._under_way.setdefault(node, set()).add(rest)
            send(node, some, partial(self._settle, rest, node), part.whole.deadline)

    def _settle(self, part: BatchPart, node: Node, outcome: Reply | PequodError) -> None:
        """Take what has become of a part at a node."""
        if (there := self._under_way.get(node)) is not None:
            there.discard(part)
            if not there:
                del self._under_way[node]
        if part.columns.has_writes():
            node.writes -= 1
            self._note_written(part)
            for lender in part.lenders:
                lender.lent -= 1
        if isinstance(outcome, UnavailableError):
            self._try_elsewhere(part, outcome)
        elif isinstance(outcome, PequodError):
            self._fail(part, outcome)
        elif part.is_moved:
            self._take_writes(part, outcome)
        elif part.columns.has_writes() and any(isinstance(one, NotHomeError) for one in outcome.results):
            self._route_again(part, outcome)
        elif at := unloaded(part.columns, outcome.results):
            self._ask_others(part, node, outcome, at)
        else:
            part.whole.take(part.positions, outcome)

    def _fail(self, part: BatchPart, error: PequodError) -> None:
        positions = part.positions
        if part.is_moved:
            positions = [positions[at] for at in writes_of(part.columns)]
        if positions:
            part.whole.fail(positions, error)

    def _take_writes(self, part: BatchPart, reply: Reply) -> None:
        if at := writes_of(part.columns):
            results = [reply.results[one] for one in at]
            part.whole.take([part.positions[one] for one in at], reply._replace(results=results))

    # Elsewhere.

    def _try_elsewhere(self, part: BatchPart, error: UnavailableError) -> None:
        """Send again what may be sent again, to the next nodes."""
        if error.is_unapplied and not part.is_moved:
            self._next(part, error)
            return
        at = writes_of(part.columns)
        if lost := [one for one in at if not (error.is_unapplied or part.columns.is_done_once(one))]:
            part.whole.fail([part.positions[one] for one in lost], error)
        if again := [one for one in at if one not in lost]:
            self._next(self._some(part, again), error)
        if not part.is_moved:
            self._try_reads(part, None, error)

    def _try_reads(self, part: BatchPart, node: Node | None, error: UnavailableError | None = None) -> None:
        """Send the reads of a part to the next nodes."""
        reads, at = part.columns.reads()
        if at:
            positions = [part.positions[one] for one in at]
            # One that was tried before may answer again.
            tried = {one for one in part.tried if one.is_away or one is node} if node is not None else set(part.tried)
            moved = BatchPart(part.whole, reads, positions, part.send, tried, part.pauses)
            self._next(
                moved,
                error.of(writes=False)
                if error
                else UnavailableError("" if node is None else node.id, "it does not answer"),
            )

    def _some(self, part: BatchPart, at: Sequence[int]) -> BatchPart:
        """Return some commands of a part as a part."""
        columns = part.columns.picked(at)
        return BatchPart(
            part.whole, columns, [part.positions[one] for one in at], part.send, set(part.tried), part.pauses
        )

    def _next(self, part: BatchPart, error: PequodError) -> None:
        """Send each command of a part to the next node that may run it; after the last one, pause."""
        routes = self._cluster.routes
        assert routes is not None, "the part was sent"
        tried, is_later = part.tried, part.pauses > 0

        def next_of(nodes: Nodes) -> Node | None:
            left = [node for node in nodes if node not in tried]
            there = next((node for node in left if not node.is_away), None)
            return there or (latest_of(left) if left and is_later else None)

        found = divided(
            part.columns, lambda key: next_of(routes.readers(key)), lambda key: next_of(routes.writers(key))
        )
        for node, columns, positions in found:
            rest = part
            if columns is not part.columns:
                mine = [part.positions[one] for one in positions]
                rest = BatchPart(part.whole, columns, mine, part.send, set(tried), part.pauses)
            if node is None:
                self._pause(rest, error)
            else:
                self._go(rest, node)

    def _ask_others(self, part: BatchPart, node: Node, reply: Reply, at: Sequence[int]) -> None:
        """Ask other servers for what one cannot load; after the last one, its refusal is the answer."""
        routes = self._cluster.routes
        assert routes is not None, "the part was sent"
        again = self._some(part, at)
        again.tried.add(node)
        part.whole.refuse(again.positions, [reply.results[one] for one in at])

        def other_of(key: bytes) -> Node | None:
            return next((one for one in routes.readers(key) if not (one.is_away or one in again.tried)), None)

        answered = set(range(len(reply.results))) - set(at)
        for other, columns, positions in divided(again.columns, other_of, other_of):
            if other is None:
                answered.update(at[one] for one in positions)
            else:
                mine = [again.positions[one] for one in positions]
                self._go(BatchPart(part.whole, columns, mine, part.send, set(again.tried), part.pauses), other)
        if answered:
            results = [reply.results[one] for one in sorted(answered)]
            part.whole.take([part.positions[one] for one in sorted(answered)], reply._replace(results=results))

    def _route_again(self, part: BatchPart, reply: Reply) -> None:
        """Route writes anew that a server has refused, since it is no home of their keys."""
        refused = {at: one for at, one in enumerate(reply.results) if isinstance(one, NotHomeError)}
        others = [at for at in range(len(reply.results)) if at not in refused]
        if others:
            results = [reply.results[at] for at in others]
            part.whole.take([part.positions[at] for at in others], reply._replace(results=results))
        again = self._some(part, list(refused))
        self._cluster.learn_newer(max(error.map_version for error in refused.values()))
        self._pause(again, next(iter(refused.values())))

    # Pauses.

    def _pause(self, part: BatchPart, error: PequodError) -> None:
        """Try from the beginning after a pause, or fail if there were enough."""
        part.pauses += 1
        part.tried.clear()
        loop = asyncio.get_running_loop()
        wait_s = pause_s(part.pauses)
        if part.pauses > self._cluster.retries or loop.time() + wait_s >= part.whole.deadline:
            part.whole.fail(part.positions, error)
        elif part.columns.has_writes():
            self._hold(part, self._home_group(part), wait_s)
        else:
            self._paused[part] = loop.call_later(wait_s, self._resume_reads, part)

    def _must_wait(self, part: BatchPart, node: Node | None) -> bool:
        """Have writes wait if others of their home group wait, or are under way at another node."""
        part.group = self._home_group(part)
        if part.group not in self._held:
            at, _ = self._writing.get(part.group, (node, 0))
            if at is node:
                return False
        # The batches of a stream that broke fail one after the other, at once.
        self._hold(part, part.group, pause_s(1) if part.has_waited else 0.0)
        part.has_waited = True
        return True

    def _hold(self, part: BatchPart, group: str, wait_s: float) -> None:
        """Have writes wait among those of their home group, in the order of sending."""
        if group not in self._held:
            self._held[group] = [], asyncio.get_running_loop().call_later(wait_s, self._resume, group)
        insort(self._held[group][0], part, key=_number)

    def _note_written(self, part: BatchPart) -> None:
        # The map may have changed since it was sent.
        node, parts = self._writing.pop(part.group)
        if parts > 1:
            self._writing[part.group] = node, parts - 1

    def _home_group(self, part: BatchPart) -> str:
        """Return the home group of the writes of a part; they have one node, so most parts have one group."""
        assert self._cluster.routes is not None, "the part was routed"
        return self._cluster.routes.home_group_of(written_keys(part.columns)[0])

    def _resume(self, group: str) -> None:
        held, _ = self._held.pop(group)
        for at, part in enumerate(held, 1):
            self._start_again(part)
            if group in self._held:
                # It pauses again: those behind it wait with it.
                for behind in held[at:]:
                    insort(self._held[group][0], behind, key=_number)
                return

    def _resume_reads(self, part: BatchPart) -> None:
        del self._paused[part]
        self._start_again(part)

    def _start_again(self, part: BatchPart) -> None:
        if part.whole.deadline <= asyncio.get_running_loop().time():
            self._end_late(part)
        elif part.pauses or part.tried:
            self._next(part, UnavailableError(self._cluster.target, "no server answers", is_unapplied=True))
        elif (routes := self._cluster.routes) is not None:
            self._divide(part, routes)

    def _end_late(self, part: BatchPart) -> None:
        self._early = deque(early for early in self._early if early[0] is not part)
        part.whole.fail(part.positions, DeadlineExceededError(self._cluster.target, self._cluster.timeout_s))

    async def close(self) -> None:
        """End; batches that wait fail. Batches under way fail with their nodes."""
        parts = list(self._paused)
        for timer in self._paused.values():
            timer.cancel()
        self._paused.clear()
        for held, timer in self._held.values():
            timer.cancel()
            parts += held
        self._held.clear()
        self.refuse_early(ClosedError())
        for part in parts:
            part.whole.fail(part.positions, ClosedError())


def _number(part: BatchPart) -> int:
    return part.whole.number
