"""Batches that are divided by the servers that run their commands, and put together again.

put a  get b  scan c  get d     commands 0 to 3
  |      |      |       |
 h1     c1     c2      c1       ->   h1: [0]   c1: [1, 3]   c2: [2]   each part in the order of the batch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Final, TypeVar

from pequod.calls import Result, token_of_reply
from pequod.client.cluster.node import Node
from pequod.client.columns import Columns, Reply
from pequod.client.stream import Deliver
from pequod.commands.columns import has_reads, has_writes
from pequod.commands.kinds import ARGUMENT_COUNTS, WRITES
from pequod.errors import BackingStaleError, BackingUnavailableError, DeadlineExceededError, PequodError
from pequod.freshness import NO_TOKEN, Latest, Token

P = TypeVar("P")
Finder = Callable[[bytes], Node | None]


def divided(columns: Columns, reader: Finder, writer: Finder) -> list[tuple[Node | None, Columns, Sequence[int]]]:
    """Return the commands of each node, with their positions; those of no node have None.

    Cost:
        1 us a command over three nodes, less if all go to one.
    """
    arguments, kinds = columns.arguments, columns.kinds
    widths = kinds.translate(ARGUMENT_COUNTS)
    if widths.count(widths[0]) == len(widths):
        keys = arguments[:: widths[0]]
    else:
        keys = [arguments[end - width] for width, end in zip(widths, accumulate(widths), strict=True)]
    nodes: list[Node | None]
    if not (has_writes(kinds) and has_reads(kinds)):
        nodes = list(map(writer if has_writes(kinds) else reader, keys))
    else:
        nodes = [writer(key) if kind in WRITES else reader(key) for key, kind in zip(keys, kinds, strict=True)]
    if nodes.count(nodes[0]) == len(nodes):
        return [(nodes[0], columns, range(len(nodes)))]
    if columns.overrides or columns.batch_id or columns.numbers or len(arguments) != 2 * len(kinds):
        return taken_apart(columns, nodes)
    return _pairs_taken_apart(columns, nodes)


def _pairs_taken_apart(columns: Columns, nodes: list[Node | None]) -> list[tuple[Node | None, Columns, Sequence[int]]]:
    """Do what `taken_apart` does, in half the time, for commands of two arguments each and of one level."""
    places: dict[Node | None, list[int]] = {}
    for position, node in enumerate(nodes):
        if node in places:
            places[node].append(position)
        else:
            places[node] = [position]
    pairs = list(zip(columns.arguments[::2], columns.arguments[1::2], strict=True))
    kinds = columns.kinds
    parts: list[tuple[Node | None, Columns, Sequence[int]]] = []
    for node, positions in places.items():
        taken = Columns(columns.freshness)
        taken.trace = columns.trace
        taken.kinds = bytearray([kinds[position] for position in positions])
        taken.arguments = list(chain.from_iterable([pairs[position] for position in positions]))
        parts.append((node, taken, positions))
    return parts


#: How a server refuses reads of ranges that it does not have while its homes are away, or is too old itself.
NOT_LOADED: Final = frozenset({BackingUnavailableError, BackingStaleError})


def writes_of(columns: Columns) -> list[int]:
    """Return the positions of the commands that change something."""
    return [at for at, kind in enumerate(columns.kinds) if kind in WRITES]


def unloaded(columns: Columns, results: Sequence[Result]) -> list[int]:
    """Return the positions of reads that failed since their server cannot load what they need: others may have it.

    `latest` is not among them: no server can answer it while the homes are away.
    """
    if NOT_LOADED.isdisjoint(map(type, results)):
        return []
    levels = columns.overrides
    return [
        at
        for at, (kind, result) in enumerate(zip(columns.kinds, results, strict=True))
        if type(result) in NOT_LOADED
        and kind not in WRITES
        and not isinstance(levels.get(at, columns.freshness), Latest)
    ]


def taken_apart(columns: Columns, places: Sequence[P]) -> list[tuple[P, Columns, Sequence[int]]]:
    """Return the commands of each place, with their positions."""
    parts: dict[P, list[int]] = {}
    for position, place in enumerate(places):
        parts.setdefault(place, []).append(position)
    found = columns.starts()
    return [(place, columns.picked(positions, found), positions) for place, positions in parts.items()]


class DividedBatch:
    """A batch whose commands several servers run.

    Args:
        deliver: Gets the reply once all results are there.
        number: Its place in the order of sending.

    Invariants:
        1. ``_left`` commands have no result yet; each gets one result.
    """

    __slots__ = (
        *("_age_ms", "_deliver", "_has_answer", "_left", "_refusals", "_results", "_server", "_token"),
        *("deadline", "number"),
    )

    def __init__(self, count: int, deliver: Deliver, deadline: float, number: int = 0) -> None:
        self.deadline = deadline
        self.number = number
        self._deliver = deliver
        self._results: list[Result] = [None] * count
        self._left = count
        self._token: Token = NO_TOKEN
        self._age_ms: int | None = 0
        self._has_answer = False
        #: By command, why a server could not answer while others are asked.
        self._refusals: dict[int, Result] = {}
        #: The server and its revision, (0, 0) once there are several.
        self._server: tuple[int, int] | None = None

    def take(self, positions: Sequence[int], reply: Reply) -> None:
        """Take the results of some commands, and the state that answered them."""
        server = (reply.server_id, reply.revision)
        self._server = server if self._server in (None, server) else (0, 0)
        if reply.token:
            self._token = self._token.merged(token_of_reply(reply.token))
        # As old as the oldest part.
        self._age_ms = None if None in (self._age_ms, reply.age_ms) else max(self._age_ms, reply.age_ms)  # type: ignore[type-var]
        self._has_answer = True
        self._set(positions, reply.results)

    def fail(self, positions: Sequence[int], error: PequodError) -> None:
        """Take an error as the result of some commands; a refusal says more than that the time was over."""
        refusals = self._refusals if isinstance(error, DeadlineExceededError) else {}
        self._set(positions, [refusals.get(position, error) for position in positions])

    def refuse(self, positions: Sequence[int], refusals: Sequence[Result]) -> None:
        """Note why a server could not answer some commands, which others are asked."""
        self._refusals.update(zip(positions, refusals, strict=True))

    def _set(self, positions: Sequence[int], results: Sequence[Result]) -> None:
        if len(positions) == len(self._results):
            self._results = list(results)
        else:
            mine = self._results
            for position, result in zip(positions, results, strict=True):
                mine[position] = result
        self._left -= len(positions)
        assert self._left >= 0, "1: each command gets one result"
        if not self._left:
            self._deliver(self._outcome())

    def _outcome(self) -> Reply | PequodError:
        first = self._results[0]
        if not self._has_answer and isinstance(first, PequodError) and all(one is first for one in self._results):
            return first
        server_id, revision = self._server or (0, 0)
        token = bytes(self._token) if self._token.positions else b""
        return Reply(0, server_id, revision, self._results, token, self._age_ms if self._has_answer else None)


def in_runs(columns: Columns, send: Callable[[Columns, Deliver], None], deliver: Deliver) -> None:
    """Send commands in runs of writes and runs of reads, each after the reply to the one before.

    A read may be run by another server than the write before it: it asks for the state that the write's reply has
    named. And it shows nothing of the writes behind it, which go out after its reply.

    Args:
        send: Sends commands with what was seen by then.
    """
    writes = [kind in WRITES for kind in columns.kinds]
    numbers = list(accumulate((one is not other for one, other in pairwise(writes)), initial=0))
    runs = iter(taken_apart(columns, numbers))
    whole = DividedBatch(len(columns), deliver, 0.0)

    def send_next() -> None:
        if (run := next(runs, None)) is not None:
            _, some, positions = run
            send(some, lambda outcome: settle(positions, outcome))

    def settle(positions: Sequence[int], outcome: Reply | PequodError) -> None:
        if isinstance(outcome, PequodError):
            whole.fail(positions, outcome)
        else:
            whole.take(positions, outcome)
        send_next()

    if numbers[-1]:
        send_next()
    else:
        send(columns, deliver)
