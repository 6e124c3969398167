"""Commands of which some have request ids: one that was done before is not done again.

ids  {1: id}    PUT  ADD       known     its first outcome is taken, and the engine is not asked
                      ^ 1      unknown   it runs, and its outcome is remembered in the same turn

A batch whose ids are all new runs natively, and what is left of it after a wait does, too; see quick.py and native.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import cast

from pequod_proto.pequod_pb2 import ExecuteRequest

from pequod.commands.kinds import DECIDED
from pequod.engine import Engine, PequodError
from pequod.engine.answer import Answer
from pequod.engine.batch import BatchRun, Waits
from pequod.errors import BadRequestError
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import BATCH_ID_BYTES, Decided, Once, id_at, once_of, refuse_id, with_head


def ids_of(request: ExecuteRequest) -> dict[int, bytes]:
    """Return the request ids of a batch, by the positions of their commands.

    Raises:
        BadRequestError: They are no ids, or go with commands that have none.
    """
    if request.batch_id or request.batch_positions:
        return _ids_of_batch(request)
    positions: Sequence[int] = request.once_commands
    ids: Sequence[bytes] = request.request_ids
    if not positions and not ids:
        return {}
    if len(positions) != len(ids):
        raise BadRequestError(f"each command with an id needs one: {len(positions)} commands have {len(ids)} ids")
    for position, request_id in zip(positions, ids, strict=True):
        refuse_id(request_id)
        if position >= len(request.kinds) or request.kinds[position] not in DECIDED:
            raise BadRequestError(f"command {position} has a request id, and is no ADD and no write under a condition")
    found = dict(zip(positions, ids, strict=True))
    if len(set(ids)) != len(found):
        raise BadRequestError("a batch has a request id twice, or a command has two")
    return found


def _ids_of_batch(request: ExecuteRequest) -> dict[int, bytes]:
    batch_id, positions = request.batch_id, request.batch_positions[:] or range(len(request.kinds))
    if len(batch_id) != BATCH_ID_BYTES:
        raise BadRequestError(f"the id of a batch has {BATCH_ID_BYTES} bytes, and this one has {len(batch_id)}")
    if request.once_commands or request.request_ids:
        raise BadRequestError("a batch has an id, or its commands have some, not both")
    if len(positions) != len(request.kinds):
        raise BadRequestError(f"each command needs a position: {len(request.kinds)} have {len(positions)}")
    if any(one >= other for one, other in pairwise(positions)):
        raise BadRequestError("the positions of commands in their batch do not ascend")
    return {
        at: id_at(batch_id, position)
        for at, (kind, position) in enumerate(zip(request.kinds, positions, strict=True))
        if kind in DECIDED
    }


class OnceRun(BatchRun):
    """A batch under way of which some commands have request ids.

    Args:
        ids: By the positions of the commands.
        batch_id: Of all of them, empty if each has one of its own.
        positions: Those that the commands have in the ids of the batch, none if they are those that they have here.
    """

    __slots__ = ("_batch_id", "_known_at", "_memory", "_positions")

    def __init__(
        self,
        kinds: bytes,
        arguments: list[bytes],
        numbers: list[int],
        rows_max: int,
        ids: Mapping[int, bytes],
        memory: RequestIds,
        batch_id: bytes = b"",
        positions: Sequence[int] = (),
    ) -> None:
        super().__init__(kinds, arguments, numbers, rows_max)
        self.ids = ids
        self._memory = memory
        self._batch_id, self._positions = batch_id, positions
        #: The command whose outcome was known last.
        self._known_at = -1
        self.known = self._known

    def run(
        self, engine: Engine, clock: Callable[[], float], take: Callable[[Answer | PequodError], bool]
    ) -> Waits | None:
        """Run commands as `BatchRun.run`; remember what those with ids give."""
        found: dict[bytes, list[bytes]] = {}

        def note(outcome: Answer | PequodError) -> bool:
            request_id = self.ids.get(self.index)
            if request_id is not None and self.index != self._known_at and not isinstance(outcome, PequodError):
                # If the reply has no room for it, the command runs again, and would be remembered twice.
                self._known_at = self.index
                its = found.setdefault(request_id[:BATCH_ID_BYTES], [])
                its.append(with_head(request_id, self._next().kept(cast("Decided", outcome))))
            return take(outcome)

        try:
            return super().run(engine, clock, note)
        finally:
            for batch_id, outcomes in found.items():
                self._memory.remember_all(batch_id, b"".join(outcomes), len(outcomes))

    def left(self) -> tuple[bytes, Sequence[int]] | None:
        """Return the id of the batch and the positions in its ids of the commands that are left.

        Returns:
            None if their ids are not those of one batch, or if one of these commands was done before: the same batch
            may have come again while this one waited.
        """
        ids = [request_id for at, request_id in self.ids.items() if at >= self.index]
        if not self._batch_id or not self._memory.are_new(self._batch_id, ids):
            return None
        return self._batch_id, self._positions[self.index :] or range(self.index, len(self.kinds))

    def remember(self, outcomes: bytes, count: int) -> None:
        """Keep what commands have given that ran elsewhere in this turn of the event loop."""
        self._memory.remember_all(self._batch_id, outcomes, count)

    def _known(self) -> tuple[Answer | PequodError] | None:
        """Return what the next command gave when it came before; None if it did not come."""
        request_id = self.ids.get(self.index)
        kept = None if request_id is None else self._memory.known(request_id)
        if kept is None:
            return None
        self._known_at = self.index
        try:
            return (self._next().outcome(kept),)
        except BadRequestError as error:
            return (error,)

    def _next(self) -> Once[Decided]:
        kind, key, second, number = self.command()
        return once_of(self.request_id, kind, key, second, self.third, number)
