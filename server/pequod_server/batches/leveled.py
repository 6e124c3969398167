"""The levels of freshness of a batch: each is met before the first command runs, or its reads are refused.

kinds    GET   PUT   SCAN  GET        levels   of the batch: after T      of read 3: latest
demands  T           T     latest     waits    T and latest, at the same time, and once each
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import LEVELS_MAX

from pequod.engine import PequodError
from pequod.errors import BadRequestError, InvalidTokenError, TokenLostError
from pequod.native import NativeBatch
from pequod_server.batches.columns import Command, CommandJudge, commands, reads
from pequod_server.batches.judges import StalenessJudge
from pequod_server.database.databases import Databases
from pequod_server.database.loader import Loader
from pequod_server.freshness.demands import Demand, read_level
from pequod_server.freshness.levels import Levels
from pequod_server.wire.bounds import Bounds

_MOVED: Final = "the database has failed over meanwhile"


class BatchLevels:
    """What batches need to know of levels: whether one is met, the judges of reads, and the names of states."""

    def __init__(self, levels: Levels, databases: Databases) -> None:
        self._levels = levels
        self._databases = databases
        #: See `Levels.tail`.
        self.tail: Callable[..., bytes] = levels.tail
        self._bound = StalenessJudge(databases)

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether the reads of a batch are as fresh as they have to be now, as far as that is seen at once."""
        level = batch.freshness
        return self._levels.has_at_once(level) if level else self._bound.passes(batch)

    @property
    def token(self) -> bytes:
        """The token of the present state."""
        return self._levels.token

    def count(self, batch: NativeBatch) -> None:
        """Count a batch that passed and has run."""
        self._levels.count(batch.freshness)

    def of(self, request: pb.ExecuteRequest) -> CommandJudge | None:
        """Count a batch, and return the judge of its reads; None if nothing can be wrong with them.

        Raises:
            BadRequestError: The columns of its levels do not fit.
        """
        if request.HasField("freshness") or request.fresh_commands or request.fresh_levels:
            return LeveledReads(self._levels, self._databases, request)
        self._levels.count(b"")
        return self._bound if self._databases.all else None


class _Group:
    """The reads of a batch that ask for the same level."""

    def __init__(self, levels: Levels, message: pb.Freshness | None) -> None:
        self.demand: Demand | None = None
        #: Why the level cannot be had, whatever is read.
        self.error: PequodError | None = None
        #: Why it cannot be had of databases.
        self.errors: dict[Loader, PequodError] = {}
        #: On which databases the reads depend.
        self.depends_on: list[Loader] = []
        #: Their ranges, by their positions.
        self.reads: dict[int, Bounds] = {}
        try:
            self.demand = levels.demand(None if message is None else read_level(message))
        except InvalidTokenError as error:
            self.error = error


class LeveledReads:
    """The reads of a batch that asks for levels; a judge of its commands.

    Raises:
        BadRequestError: The columns of the levels do not fit, or they have too many different ones.
    """

    def __init__(self, levels: Levels, databases: Databases, request: pb.ExecuteRequest) -> None:
        self._levels = levels
        self._databases = databases
        names, messages = request.fresh_commands[:], request.fresh_levels[:]
        if len(names) != len(messages) or any(one >= other for one, other in pairwise(names)):
            raise BadRequestError("fresh_commands have to ascend, and each needs one of fresh_levels")
        own = dict(zip(names, messages, strict=True))
        groups: dict[bytes | None, _Group] = {}
        for position, bounds in reads(commands(request.kinds, request.arguments[:])):
            message = own.pop(position, request.freshness if request.HasField("freshness") else None)
            name = None if message is None else message.SerializeToString(deterministic=True)
            if name not in groups:
                if len(groups) == LEVELS_MAX:
                    raise BadRequestError(f"a batch may ask for {LEVELS_MAX} different levels; send several batches")
                groups[name] = _Group(levels, message)
            groups[name].reads[position] = bounds
        if own:
            raise BadRequestError(f"command {next(iter(own))} of fresh_commands is no read of the batch")
        self._groups = list(groups.values())
        for group in self._groups:
            # Not in `meet`: a batch that was begun natively, with its level met, is judged without it.
            group.depends_on = databases.read_by(list(group.reads.values()))
        self._group_of = {position: group for group in self._groups for position in group.reads}

    async def meet(self) -> None:
        """Wait until the levels are met, or cannot be had."""
        await asyncio.gather(*(self._meet(group) for group in self._groups))

    async def _meet(self, group: _Group) -> None:
        demand = group.demand
        if demand is None:
            return
        if not self._databases.all:
            try:
                self._levels.refuse(demand)
            except TokenLostError as error:
                group.error = error
            return
        group.errors = await self._levels.reach(demand, group.depends_on)

    def renew(self) -> None:
        """Drop the snapshots that the reads may show and that are too old; call it before the first of them runs."""
        for group in self._groups:
            if group.demand is not None and group.error is None:
                self._levels.renew(list(group.reads.values()), group.demand)

    def basis(self) -> object:
        """Return what is wrong with the levels."""
        for group in self._groups:
            for loader in group.depends_on:
                if loader not in group.errors and group.demand is not None:
                    self._look_again(group, group.demand, loader)
        wrong = [(group.error, tuple(group.errors)) for group in self._groups]
        return wrong, [loader.is_stale for loader in self._databases.all]

    def _look_again(self, group: _Group, demand: Demand, loader: Loader) -> None:
        """See that a level is met still: a failover while the batch waits may have taken it away."""
        try:
            if not self._levels.is_met(demand, loader):
                group.errors[loader] = self._levels.stale(demand, loader, _MOVED)
        except TokenLostError as error:
            group.errors[loader] = error

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the reads whose level cannot be had, by their positions."""
        refused: dict[int, PequodError] = {}
        for position, bounds in reads(commands):
            group = self._group_of[position]
            if group.demand is None and group.error is None:
                error: PequodError | None = self._databases.stale_error(*bounds)
            else:
                error = group.error or self._error_of(group, bounds)
            if error is not None:
                refused[position] = error
        return refused

    def passes(self, _batch: NativeBatch) -> bool:
        """Return False: the reads are judged one by one."""
        return False

    def _error_of(self, group: _Group, bounds: Bounds) -> PequodError | None:
        """Return why a database on which a read depends is not as fresh as the read asks for."""
        if not group.errors:
            return None
        return next((group.errors[one] for one in self._databases.read_by([bounds]) if one in group.errors), None)
