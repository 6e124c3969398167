"""Batches of commands on one engine, and what they wait for where a database is behind it."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, NamedTuple

from pequod_proto.commands import GET, PUT, REMOVE
from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.engine import BackedKeyError, Engine, MissingError, PequodError, Range
from pequod.engine.ranges import united
from pequod_server.backing import Change
from pequod_server.batch import TAKES, Batch
from pequod_server.write_through import TOGETHER_MAX

#: How many reads are looked at when one has to wait.
_AHEAD: Final = 1000


class Writes(NamedTuple):
    """Puts of keys that the database owns, and (None) removals: of this command and of some after it."""

    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Whole:
    """A commit of the database, of which the engine has a part."""


#: What a command waits for, or a batch before its first.
Need = MissingError | Writes | Whole
#: What comes of writes: for each, whether the key was there, or why it failed.
Outcomes = list[bool | PequodError]
#: Yields needs, is sent the time, or what came of writes, and returns the reply.
Steps = Generator[Need, float | Outcomes, ExecuteReply]


class Executor:
    """Runs batches on one engine."""

    __slots__ = ("_commands_max", "_engine", "_reply_bytes_max", "_rows_max", "_server_id")

    def __init__(
        self, engine: Engine, server_id: int, *, commands_max: int, reply_bytes_max: int, rows_max: int
    ) -> None:
        self._engine = engine
        self._server_id = server_id
        self._commands_max = commands_max
        self._reply_bytes_max = reply_bytes_max
        self._rows_max = rows_max

    def execute(self, request: ExecuteRequest, now: float) -> ExecuteReply:
        """Run the commands of a batch in order, where no database is behind the engine; see `steps`."""
        try:
            next(self.steps(request, now))
        except StopIteration as end:
            reply: ExecuteReply = end.value
            return reply
        raise AssertionError("an engine without backed tables lacks nothing")

    def steps(self, request: ExecuteRequest, now: float) -> Steps:
        """Run the commands of a batch in order.

        Yields:
            What a command waits for: ranges, after which the time is sent, to have it run again, or a PequodError
            thrown for which it fails; or writes, whose outcomes are sent.

        Raises:
            BadRequestError: The columns do not fit; nothing is applied.
            LimitExceededError: The batch has more than ``batch_commands_max`` commands; nothing is applied.
        """
        batch = Batch(
            self._engine,
            request,
            commands_max=self._commands_max,
            rows_max=self._rows_max,
            reply_bytes_max=self._reply_bytes_max,
        )
        while True:
            try:
                batch.run(now)
                return batch.reply(self._server_id)
            except MissingError as missing:  # Another name than below: mypyc gives a generator's variable one class.
                need: Need = MissingError(united([*missing.ranges, *self._lacking_ahead(batch, now)]))
            except BackedKeyError:
                need = Writes(self._writes_ahead(batch))
            try:
                outcome = yield need
            except PequodError as refusal:
                batch.settle([refusal])
                continue
            if isinstance(outcome, float):
                now = outcome
                batch.again()
            else:
                batch.settle(outcome)

    def _writes_ahead(self, batch: Batch) -> list[Change]:
        """Return the write that waits, and those right behind it that the database owns, too."""
        kinds, arguments, index = batch.kinds, batch.arguments, batch.index
        at = batch.argument_at - TAKES[kinds[index]][0]
        changes: list[Change] = []
        for kind in kinds[index : index + TOGETHER_MAX]:
            if kind not in (PUT, REMOVE):
                break
            value = arguments[at + 1] if kind == PUT else None
            try:
                if not self._engine.owned_by_database(arguments[at], value or b""):
                    break
            except PequodError:
                break
            changes.append(Change(arguments[at], value))
            at += TAKES[kind][0]
        return changes

    def _lacking_ahead(self, batch: Batch, now: float) -> list[Range]:
        """Return what the reads after the one that waits lack, up to the next write, so that they wait all at once.

        What they compute now, they find then.
        """
        arguments, at = batch.arguments, batch.argument_at
        lacking: list[Range] = []
        for kind in batch.kinds[batch.index + 1 : batch.index + 1 + _AHEAD]:
            if kind in (PUT, REMOVE):
                break
            try:
                if kind == GET:
                    self._engine.get(arguments[at], now=now)
                else:
                    self._engine.count(arguments[at], arguments[at + 1] or None, now=now)
            except MissingError as error:
                lacking += error.ranges
            at += TAKES[kind][0]
        return lacking
