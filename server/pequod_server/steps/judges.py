"""What refuses commands: the caller's rights, the map of the cluster, the bound on how old reads may be.

kinds     PUT GET PUT     run   PUT GET PUT     statuses  OK FAILED OK
              ^ refused
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from pequod.commands.columns import Command, bounds_of, reads
from pequod.commands.kinds import DECIDED, RANGES, WRITES
from pequod.engine import PequodError
from pequod.errors import PermissionDeniedError, QuotaExceededError
from pequod.native import NativeBatch
from pequod_server.access.grants import Right
from pequod_server.access.guard import Caller
from pequod_server.access.quotas import PUTS, Meter, put_of
from pequod_server.database.databases import Databases
from pequod_server.homes.rules import HomeRules

#: All keys, as bounds.
_EVERYTHING: Final[tuple[list[bytes], list[bytes | None]]] = ([b""], [None])


class CommandJudge(Protocol):
    """Says which commands must not run."""

    def basis(self) -> object:
        """Return what the judgement depends on: commands are judged again when another value is returned."""
        ...

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the commands that must not run, by the commands' positions."""
        ...

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether no command of a batch is refused now, as far as that is seen without asking for each."""
        ...


class RightsJudge:
    """Refuses what the role of a caller lacks the rights to.

    Cost:
        Nothing if the role is unlimited, else 0.3 µs for each command.
    """

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def basis(self) -> object:
        """Return the caller's role.

        Raises:
            UnauthenticatedError: The caller is not known any more; nothing more of the batch is applied.
        """
        return self._caller.role()

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the commands that the role may not run, by their positions."""
        refused: dict[int, PequodError] = {}
        role = self._caller.role()
        if role.is_unlimited:
            return refused
        reads, covers, writes = role.read.holds, role.read.covers, role.write.holds
        for index, kind, first, last in commands:
            right = Right.WRITE if kind in WRITES else Right.READ
            may = covers(first, last or None) if kind in RANGES else (writes if kind in WRITES else reads)(first)
            if may and kind in DECIDED and not reads(first):
                # What it says of the present value is what a read would tell.
                right, may = Right.READ, False
            if not may:
                refused[index] = PermissionDeniedError(role.name, right, *bounds_of(kind, first, last))
        return refused

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether the role may run all commands of a batch.

        Raises:
            UnauthenticatedError: The caller is not known any more.
        """
        role = self._caller.role()
        return role.is_unlimited or batch.is_within(role.read.bounds, role.write.bounds)


class QuotaJudge:
    """Refuses what the quotas of a caller's role do not let through.

    A batch is counted once, by its commands: all of them are let through, or none. Puts are looked at one by one where
    not all of them may fit.

    Cost:
        0.2 µs for a batch without quotas.
    """

    __slots__ = ("_caller", "_is_counted", "_refusal")

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        #: Whether the present batch is counted, and why all of it is refused.
        self._is_counted = False
        self._refusal: PequodError | None = None

    def begin(self, *, is_counted: bool = False) -> None:
        """Take note that another batch begins, which the core may have counted."""
        self._is_counted = is_counted
        self._refusal = None

    def basis(self) -> object:
        """Return nothing: what was counted stays so."""
        return None

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the commands that are too many, by their positions."""
        meter = self._caller.meter()
        if meter is None:
            return {}
        left = list(commands)
        self._count(meter, len(left))
        if self._refusal is not None:
            return {position: self._refusal for position, *_ in left}
        if not meter.quotas.are_of_data:
            return {}
        puts = [(position, put_of(kind, key, value)) for position, kind, key, value in left if kind in PUTS]
        errors = meter.refused(put for _, put in puts)
        return {position: error for (position, _), error in zip(puts, errors, strict=True) if error is not None}

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether a batch is let through; it is counted then.

        Raises:
            UnauthenticatedError: The caller is not known any more.
        """
        meter = self._caller.meter()
        if meter is None:
            return True
        if not meter.has_room(len(batch.kinds), len(batch.message)):
            return False
        self._count(meter, len(batch.kinds))
        return self._refusal is None

    def _count(self, meter: Meter, count: int) -> None:
        if self._is_counted:
            return
        self._is_counted = True
        try:
            meter.take(count)
        except QuotaExceededError as error:
            self._refusal = error


class HomeJudge:
    """Refuses writes of keys that belong to other servers of the cluster.

    Cost:
        Nothing if the map says nothing of keys, else 0.3 µs for each command.
    """

    __slots__ = ("_rules",)

    def __init__(self, rules: HomeRules) -> None:
        self._rules = rules

    def basis(self) -> object:
        """Return the keys that are taken."""
        return self._rules.bounds

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the writes that belong elsewhere, by their positions."""
        refused: dict[int, PequodError] = {}
        if self._rules.bounds is None:
            return refused
        for index, kind, first, _ in commands:
            if kind in WRITES and (error := self._rules.error_of(first)) is not None:
                refused[index] = error
        return refused

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether all writes of a batch are taken."""
        bounds = self._rules.bounds
        return bounds is None or batch.is_within(_EVERYTHING, bounds)


class StalenessJudge:
    """Refuses reads that may show what is older than the bound of staleness allows."""

    __slots__ = ("_databases",)

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def basis(self) -> object:
        """Return of which databases what is known is older than it may be."""
        return [loader.is_stale for loader in self._databases.all]

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the reads that depend on such a database, by their positions."""
        refused: dict[int, PequodError] = {}
        if not self._databases.are_stale:
            return refused
        for index, bounds in reads(commands):
            if (error := self._databases.stale_error(*bounds)) is not None:
                refused[index] = error
        return refused

    def passes(self, _batch: NativeBatch) -> bool:
        """Return whether what is known of the databases is fresh enough for every read."""
        return not self._databases.are_stale
