"""How fresh the reads of a batch have to be: each level is met before the first command runs, or its reads are refused.

kinds    GET   PUT   SCAN  GET        levels   of the batch: after T      of read 3: latest
demands  T           T     latest     waits    T and latest, at the same time, and once each
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise

from pequod_proto import pequod_pb2 as pb
from pequod_proto.contract import LEVELS_MAX

from pequod.commands.columns import Command, commands, reads
from pequod.engine import Engine, PequodError
from pequod.engine.batch import BatchRun
from pequod.errors import BadRequestError, InvalidTokenError, TokenLostError
from pequod.native import NativeBatch
from pequod_server.database.databases import Databases
from pequod_server.database.loader import Loader
from pequod_server.freshness.demands import Demand, read_level
from pequod_server.freshness.levels import Levels
from pequod_server.steps.judges import CommandJudge, StalenessJudge
from pequod_server.wire.bounds import Bounds


class BatchLevels:
    """Levels as batches see them: whether one is met, the judges of reads, and the names of states."""

    def __init__(self, engine: Engine, levels: Levels, databases: Databases) -> None:
        self._engine = engine
        self._levels = levels
        self._databases = databases
        #: See `Levels.tail`.
        self.tail: Callable[..., bytes] = levels.tail
        self._bound = StalenessJudge(databases)

    @property
    def token(self) -> bytes:
        """The token of the present state."""
        return self._levels.token

    # A batch that runs natively, or one command: what is seen at once.

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether the reads of a batch are as fresh as they have to be now, as far as that is seen at once."""
        level = batch.freshness
        return self._levels.has_at_once(level) if level else self._bound.passes(batch)

    def passes_reads(self) -> bool:
        """Return whether reads of anything are as fresh as the settings say, and no commit is half applied."""
        databases = self._databases
        return not databases.gate.closed and not databases.are_stale

    def passes_read(self, bounds: Bounds, demand: Demand) -> bool:
        """Return whether a read is as fresh as demanded and no commit half applied, as far as that is seen at once."""
        if self._databases.gate.closed or self._engine.is_timed:
            # Where a join is a snapshot, that may have to be taken anew first.
            return False
        return self._levels.has_now(demand, bounds)

    def count(self, batch: NativeBatch) -> None:
        """Count a batch that passed and has run."""
        self._levels.count(batch.freshness)

    # Others: their reads are judged one by one.

    def bound(self) -> CommandJudge | None:
        """Return the judge of reads that ask for no level; None if nothing can be wrong with them."""
        return self._bound if self._databases.all else None

    def of(self, request: pb.ExecuteRequest) -> CommandJudge | None:
        """Count a batch, and return the judge of its reads; None if nothing can be wrong with them.

        Raises:
            BadRequestError: The columns of its levels do not fit.
        """
        if request.HasField("freshness") or request.fresh_commands or request.fresh_levels:
            return LeveledReads(self._levels, self._databases, _groups(self._levels, request))
        self._levels.count(b"")
        return self.bound()

    def of_call(self, run: BatchRun, demand: Demand | None) -> CommandJudge | None:
        """Return the judge of the reads of a call, which is counted; None if nothing can be wrong with them."""
        if demand is None:
            return self.bound()
        return LeveledReads(self._levels, self._databases, [_Group(demand, dict(reads(run.ahead())))])

    async def ready(self, fresh: CommandJudge | None, run: BatchRun) -> None:
        """Wait until the reads that are left are as fresh as they have to be, and no commit of theirs is half applied.

        Args:
            fresh: Their judge, which refuses reads that cannot become as fresh.

        Ensures:
            The reads are as fresh when this returns: it looked last, and did not wait afterwards.
        """
        leveled = fresh if isinstance(fresh, LeveledReads) else None
        while True:
            if leveled is not None:
                await leveled.meet()
            if not self._databases.gate.closed:
                break
            read_by = self._databases.read_by([bounds for _, bounds in reads(run.ahead())])
            closed = [loader.gate for loader in read_by if loader.gate.is_closed]
            if not closed:
                break
            await closed[0].opened()
        if leveled is not None:
            leveled.renew()


class _Group:
    """Reads that ask for the same level.

    Args:
        demand: The level; None: as the server's settings say.
        reads: Their ranges, by their positions.
        error: Why the level cannot be had, whatever is read.
    """

    def __init__(self, demand: Demand | None, reads: dict[int, Bounds], error: PequodError | None = None) -> None:
        self.demand = demand
        self.reads = reads
        self.error = error
        #: Why it cannot be had of databases.
        self.errors: dict[Loader, PequodError] = {}


def _group(levels: Levels, message: pb.Freshness | None) -> _Group:
    try:
        return _Group(levels.demand(None if message is None else read_level(message)), {})
    except InvalidTokenError as error:
        return _Group(None, {}, error)


def _groups(levels: Levels, request: pb.ExecuteRequest) -> list[_Group]:
    """Return the reads of a batch by their levels.

    Raises:
        BadRequestError: The columns of the levels do not fit, or they have too many different ones.
    """
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
            groups[name] = _group(levels, message)
        groups[name].reads[position] = bounds
    if own:
        raise BadRequestError(f"command {next(iter(own))} of fresh_commands is no read of the batch")
    return list(groups.values())


class LeveledReads:
    """Reads that ask for levels; a judge of them."""

    def __init__(self, levels: Levels, databases: Databases, groups: list[_Group]) -> None:
        self._levels = levels
        self._databases = databases
        self._groups = groups
        self._group_of = {position: group for group in groups for position in group.reads}

    async def meet(self) -> None:
        """Wait until the levels are met, or cannot be had: at first, and after a failover has taken them away.

        Ensures:
            All are met, or refused, at the moment when this returns.
        """
        levels = self._levels
        leveled = [(one, one.demand) for one in self._groups if one.demand is not None and one.error is None]
        if not self._databases.all:
            for group, demand in leveled:
                try:
                    levels.refuse(demand)
                except TokenLostError as error:
                    group.error = error
            return
        # Once one is met, the others may not be any more.
        while waits := [
            self._reach(group, demand, unmet) for group, demand in leveled if (unmet := self._unmet(group, demand))
        ]:
            await (waits[0] if len(waits) == 1 else asyncio.gather(*waits))

    def _unmet(self, group: _Group, demand: Demand) -> list[Loader]:
        """Return the databases that are not as fresh as demanded, or never will be, and of which no error says so."""
        unmet: list[Loader] = []
        for loader in self._databases.read_by(list(group.reads.values())):
            try:
                if loader not in group.errors and not self._levels.is_met(demand, loader):
                    unmet.append(loader)
            except TokenLostError:
                unmet.append(loader)
        return unmet

    async def _reach(self, group: _Group, demand: Demand, unmet: list[Loader]) -> None:
        group.errors |= await self._levels.reach(demand, unmet)

    def renew(self) -> None:
        """Drop the snapshots that the reads may show and that are too old; call it before the first of them runs."""
        for group in self._groups:
            if group.demand is not None and group.error is None:
                self._levels.renew(list(group.reads.values()), group.demand)

    def basis(self) -> object:
        """Return what is wrong with the levels."""
        wrong = [(group.error, tuple(group.errors)) for group in self._groups]
        return wrong, [loader.is_stale for loader in self._databases.all]

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
