"""An engine on Python's classes in a process of its own, which takes the steps that an engine here takes.

python -m tests.native.beside      reads steps from its standard input, writes what its engine is after each
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from random import Random
from typing import IO, Final

from pequod.engine import Engine
from pequod.engine.reads import reach
from pequod.native import core
from tests.engine.random_walk import small_limits
from tests.engine.walker import Step, Walker

#: A seed of limits and the backed tables, with which a walk begins, or the next step of the walk.
Message = tuple[int, tuple[bytes, ...]] | Step
#: The numbers of the ledger that do not depend on what classes take.
_LEDGER: Final = ("entry_count", "row_bytes", "context_count", "range_count", "state_bytes", "log_bytes", "evictions")


def begin(seed: int, backed: tuple[bytes, ...]) -> Walker:
    """Return a walker at its beginning.

    Its reads compute no gap in slices: the core takes in one go what Python's classes may cut, and their counts differ.
    """
    reach.SLICE_KEYS = 1 << 30
    walker = Walker()
    if backed:
        walker.take(Step("back", backed))
    return walker


def portrait(engine: Engine) -> dict[str, object]:
    """Return what an engine holds, in values that compare equal if it is the same in all that matters."""
    shown: dict[str, object] = {name: getattr(engine.ledger, name) for name in _LEDGER}
    shown["revision"] = engine.revision
    shown["loaded"] = engine.loaded()
    shown["used"] = [
        (one.first, one.last, one.last_used)
        for table in engine._store.backed
        if table.presence is not None
        for one in table.presence
    ]
    shown["base"] = tuple(engine.base_rows())
    for join in engine._catalog:
        name, counters = join.info.name, join.counters
        shown[f"{name}: counters"] = [
            counters.hits,
            counters.computed_ranges,
            counters.rows_computed,
            counters.log_applied,
            counters.invalidations,
        ]
        shown[f"{name}: ranges"] = [(one.first, one.last, one.context.prefix) for one in join.coverage]
        for prefix, context in sorted(join.contexts.items()):
            shown[f"{name}: {prefix!r}"] = (
                tuple(context.rows.everything()),
                context.is_fresh,
                context.last_used,
                sorted(context.log.items()),
                (context.lower, context.upper, context.row_bytes, context.state_bytes),
            )
            if (kept := context.kept) is not None:
                spares = [(group, one.edge, *one.rows.everything()) for group, one in sorted(kept.spares.items())]
                shown[f"{name}: {prefix!r}, spare"] = spares, sorted(kept.short), context.room, context.room_over
        for sites in join.sites:
            for site in sites:
                waiting = {
                    updaters.key: (sorted(context.prefix for context in updaters.contexts), updaters.tail_bytes)
                    for updaters in site._by_key.values()
                }
                shown[f"{name}: level {site.plan.level}, source {site.step.depth}"] = sorted(waiting.items())
    return shown


class PureTwin:
    """The process with the engine on Python's classes."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**os.environ, "PEQUOD_PURE": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def take(self, message: Message) -> dict[str, object]:
        """Have it take a step; return what its engine is then.

        Raises:
            AssertionError: The step failed there; the text says how.
        """
        _write(self._process.stdin, message)
        assert self._process.stdout is not None
        answer = pickle.load(self._process.stdout)
        assert isinstance(answer, dict), answer
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.communicate()


def _write(pipe: IO[bytes] | None, thing: object) -> None:
    assert pipe is not None
    pickle.dump(thing, pipe)
    pipe.flush()


def main() -> None:
    """Take steps until the input ends."""
    assert core is None, "PEQUOD_PURE is set"
    output = os.fdopen(os.dup(1), "wb")
    walker, limits = Walker(), small_limits(Random(0))
    limits.__enter__()
    while True:
        try:
            message: Message = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            if isinstance(message, Step):
                walker.take(message)
            else:
                limits.__exit__(None, None, None)
                limits = small_limits(Random(message[0]))
                limits.__enter__()
                walker = begin(*message)
            _write(output, portrait(walker.engine))
        except AssertionError as error:
            _write(output, f"in pure Python: {error!r}")


if __name__ == "__main__":
    main()
