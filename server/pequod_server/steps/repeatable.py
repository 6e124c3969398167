"""Commands of which some have request ids: one that was done before is not done again.

ids  {1: id}    PUT  ADD       known     its first outcome is taken, and the engine is not asked
                      ^ 1      unknown   it runs, and its outcome is remembered in the same turn
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pequod_proto.pequod_pb2 import ExecuteRequest

from pequod.commands.kinds import DECIDED
from pequod.engine import Engine, PequodError
from pequod.engine.answer import Answer
from pequod.engine.batch import BatchRun, Waits
from pequod.errors import BadRequestError
from pequod.language.conditions import Met, Unmet
from pequod_server.once.memory import RequestIds
from pequod_server.once.outcomes import Decided, Once, once_of, refuse_id


def ids_of(request: ExecuteRequest) -> dict[int, bytes]:
    """Return the request ids of a batch, by the positions of their commands.

    Raises:
        BadRequestError: They are no ids, or go with commands that have none.
    """
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


class OnceRun(BatchRun):
    """A batch under way of which some commands have request ids.

    Args:
        ids: By the positions of the commands.
    """

    __slots__ = ("_memory",)

    def __init__(
        self,
        kinds: bytes,
        arguments: list[bytes],
        numbers: list[int],
        rows_max: int,
        ids: Mapping[int, bytes],
        memory: RequestIds,
    ) -> None:
        super().__init__(kinds, arguments, numbers, rows_max)
        self.ids = ids
        self._memory = memory
        self.known = self._known

    def run(
        self, engine: Engine, clock: Callable[[], float], take: Callable[[Answer | PequodError], bool]
    ) -> Waits | None:
        """Run commands as `BatchRun.run`; remember what those with ids give."""

        def note(outcome: Answer | PequodError) -> bool:
            request_id = self.ids.get(self.index)
            if request_id is not None and isinstance(outcome, (bytes, Met, Unmet)):
                self._memory.remember(request_id, self._next().kept(outcome))
            return take(outcome)

        return super().run(engine, clock, note)

    def _known(self) -> Answer | PequodError:
        """Return what the next command gave when it came before; None if it did not."""
        request_id = self.ids.get(self.index)
        kept = None if request_id is None else self._memory.known(request_id)
        if kept is None:
            return None
        try:
            return self._next().outcome(kept)
        except BadRequestError as error:
            return error

    def _next(self) -> Once[Decided]:
        kind, key, second, number = self.command()
        return once_of(self.request_id, kind, key, second, self.third, number)
