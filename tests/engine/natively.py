"""One command on an engine, as a native batch runs it, and as Python does where that is not quick."""

from __future__ import annotations

from collections.abc import Sequence

from pequod_proto.pequod_pb2 import ExecuteReply, ExecuteRequest

from pequod.calls import Result
from pequod.client.columns import decode_reply
from pequod.engine import Engine
from pequod.engine.answer import answer
from pequod.native import parse_batch


def run_one(engine: Engine, kind: int, arguments: Sequence[bytes], number: int | None, *, now: float) -> Result:
    """Run a command with its arguments and its number, if it has one, and return its result.

    Raises:
        PequodError: As `answer`.
    """
    first, second, third = [*arguments, b"", b""][:3]
    request = ExecuteRequest(kinds=bytes((kind,)), arguments=arguments, numbers=[] if number is None else [number])
    batch = None if engine.is_timed else parse_batch(request.SerializeToString(), 1, 1 << 20, 1 << 20)
    if batch is None or engine.run_quick(batch, now):
        return answer(engine, kind, first, second, number or 0, now, third)
    (result,) = decode_reply(request.kinds, ExecuteReply.FromString(batch.reply(0, 0))).results
    return result
