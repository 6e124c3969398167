"""Commands as columns, under way on an engine: which of them is next, and how they are run.

    kinds      SCAN        PUT        GET     index 1, argument_at 2: the SCAN has run, and the PUT is next
    arguments  first last  key value  key

A batch runs until all of its commands have run, one of them has to wait, or the one who takes the outcomes has no room
for more. Where the native core is, it runs the commands of most batches instead (pequod/native/batch_commands.cpp).

>>> from pequod.commands.kinds import GET, PUT
>>> from pequod.engine import Engine
>>> batch, outcomes = BatchRun(bytes([PUT, GET]), [b"a", b"1", b"a"], []), []
>>> def take(outcome):
...     outcomes.append(outcome)
...     batch.advance()
...     return True
>>> batch.run(Engine(), lambda: 0.0, take); outcomes
[None, b'1']
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pequod.commands.columns import Command, commands
from pequod.commands.kinds import (
    ARGUMENT_COUNTS,
    CONDITIONAL,
    KIND_OF,
    KINDS,
    NUMBER_COUNTS,
    SCAN_SHRINK,
    SCAN_TRIES_MAX,
    SCANS,
)
from pequod.engine.answer import Answer, answer
from pequod.engine.engine import Engine
from pequod.language.errors import BackedKeyError, LimitExceededError, PequodError
from pequod.language.missing import MissingError

#: What the next command waits for.
Waits = MissingError | BackedKeyError
_NO_IDS: Final[Mapping[int, bytes]] = MappingProxyType({})


#: The scans of which a part needs less memory.
_SCANS_UP: Final = frozenset(kind for kind in SCANS if not KIND_OF[kind].is_down)


#: Reads that need all of a range at a time, and the way out if there is no memory for that.
_OF_WHOLE_RANGES: Final = frozenset(kind.code for kind in KINDS if kind.is_of_range and not kind.is_write) - _SCANS_UP
_IN_PARTS: Final = "count or scan a part of it, or scan it upwards, which reads it in parts"


def with_advice(kind: int, error: PequodError) -> PequodError:
    """Return the error of a command with the way out, if that is another one than that of all errors of its kind."""
    if kind in _OF_WHOLE_RANGES and isinstance(error, LimitExceededError) and error.is_of_memory:
        return error.with_advice(error.advice or _IN_PARTS)
    return error


def is_short_of_memory(error: PequodError) -> bool:
    """Return whether what fails with an error may fit into memory in smaller parts."""
    return isinstance(error, LimitExceededError) and error.is_of_memory


class BatchRun:
    """A batch under way: its commands, and the next one to run.

    Args:
        rows_max: The greatest number of rows that a scan returns, whatever it asks for; 0: as it asks.

    Invariants:
        1. All commands before ``index`` have run, and none from there on; but the one at ``index`` may have given its
           first rows, and then the columns hold a command for the rest of them in its place.
        2. ``argument_at`` and ``number_at`` are where the arguments and the numbers of the next command begin.
    """

    __slots__ = (
        *(
            "_short_at",
            "_short_count",
            "argument_at",
            "arguments",
            "ids",
            "index",
            "kinds",
            "known",
            "number_at",
            "numbers",
        ),
        *("refusal", "rows_max"),
    )

    def __init__(self, kinds: bytes, arguments: list[bytes], numbers: list[int], rows_max: int = 0) -> None:
        self.kinds = kinds
        self.arguments = arguments
        self.numbers = numbers
        self.rows_max = rows_max
        #: Where a scan was short of memory last, and how many rows it was to give there.
        self._short_at: tuple[int, bytes, int] | None = None
        self._short_count = 0
        self.index = self.argument_at = self.number_at = 0
        #: Returns why the command at a position must not run, None if it may; it is asked just before the command runs.
        #: None: all may.
        self.refusal: Callable[[int], PequodError | None] | None = None
        #: The request ids of commands, by their positions, and what returns the outcome of the next command, alone in
        #: a tuple, if it was done before, as an error if its id is that of another one; asked just before it runs.
        self.ids = _NO_IDS
        self.known: Callable[[], tuple[Answer | PequodError] | None] | None = None

    @property
    def kind(self) -> int:
        """The kind of the next command."""
        return self.kinds[self.index]

    def command(self) -> tuple[int, bytes, bytes, int]:
        """Return kind, two arguments and number of the next command; what it does not take is empty, or 0."""
        kind, at = self.kinds[self.index], self.argument_at
        second = self.arguments[at + 1] if ARGUMENT_COUNTS[kind] > 1 else b""
        return kind, self.arguments[at], second, self.numbers[self.number_at] if NUMBER_COUNTS[kind] else 0

    @property
    def third(self) -> bytes:
        """The third argument of the next command, empty if it has none."""
        at = self.argument_at + 2
        return self.arguments[at] if ARGUMENT_COUNTS[self.kind] > 2 else b""

    @property
    def ttl_ms(self) -> int:
        """The second number of the next command, 0 if it has none."""
        return self.numbers[self.number_at + 1] if NUMBER_COUNTS[self.kind] > 1 else 0

    @property
    def request_id(self) -> bytes:
        """The request id of the next command, empty if it has none."""
        return self.ids.get(self.index, b"")

    def run(
        self, engine: Engine, clock: Callable[[], float], take: Callable[[Answer | PequodError], bool]
    ) -> Waits | None:
        """Run the commands that are left, in order.

        Args:
            take: Gets what the next command gives, or its error, and passes by it with `advance` once it has all that
                it wants of it. Returns whether the batch goes on.

        Returns:
            What the next command has to wait for; None if all have run, or ``take`` has said that the batch stops.
        """
        is_timed, now, refusal, known, rows_max = engine.is_timed, clock(), self.refusal, self.known, self.rows_max
        outcome: Answer | PequodError
        while self.index < len(self.kinds):
            if is_timed:
                # The commands before may have taken long.
                now = clock()
            outcome = None if refusal is None else refusal(self.index)
            came = None if outcome is not None or known is None else known()
            if came is not None:
                (outcome,) = came
            elif outcome is None:
                kind, first, second, number = self.command()
                try:
                    if kind in CONDITIONAL:
                        outcome = answer(engine, kind, first, second, number, now, self.third, self.ttl_ms)
                    else:
                        if rows_max and kind in SCANS and not 0 < number < rows_max:
                            number = rows_max
                        outcome = answer(engine, kind, first, second, number, now)
                except (MissingError, BackedKeyError) as error:
                    return error.with_traceback(None)
                except PequodError as error:
                    if is_short_of_memory(error) and self.shrink():
                        rows_max = self.rows_max
                        continue
                    outcome = with_advice(self.kind, error)
            if not take(outcome):
                break
        return None

    def advance(self) -> int:
        """Pass by the next command, and return its position."""
        kind = self.kinds[self.index]
        self.argument_at += ARGUMENT_COUNTS[kind]
        self.number_at += NUMBER_COUNTS[kind]
        self.index += 1
        return self.index - 1

    def shrink(self) -> bool:
        """Have the next command give fewer rows at a time, if it is a scan; return whether it is to run again.

        It runs once more with as many, and with one row some times more: its refusal has let go of what the parts
        before have used.
        """
        if not self.rows_max or self.kind not in _SCANS_UP:
            return False
        place = (self.argument_at, self.arguments[self.argument_at], self.rows_max)
        if place != self._short_at:
            self._short_at, self._short_count = place, 0
        self._short_count += 1
        if self._short_count == 1:
            return True
        if self.rows_max == 1:
            return self._short_count <= SCAN_TRIES_MAX
        self.rows_max = max(1, self.rows_max // SCAN_SHRINK)
        return True

    def ahead(self) -> Iterator[Command]:
        """Yield the commands that are left."""
        return commands(self.kinds, self.arguments, self.index, self.argument_at)

    def go_on_behind(self, rows: int, last_key: bytes) -> None:
        """Have the next command, a scan, go on behind its first rows.

        Args:
            rows: How many it has given, the last of them of ``last_key``.
        """
        kind = KIND_OF[self.kind]
        if kind.is_down:
            self.arguments[self.argument_at + 1] = last_key
        else:
            self.arguments[self.argument_at] = last_key + b"\0"
        if kind.numbers and self.numbers[self.number_at]:
            self.numbers[self.number_at] -= rows


class MomentRun(BatchRun):
    """Reads that are answered at one moment: as long as one of them has to wait, none is answered."""

    __slots__ = ()

    def run(
        self, engine: Engine, clock: Callable[[], float], take: Callable[[Answer | PequodError], bool]
    ) -> MissingError | None:
        """Run all commands; see `BatchRun.run`. What they wait for is returned together."""
        start, outcomes, missing = (self.index, self.argument_at, self.number_at), list[Answer | PequodError](), []

        def note(outcome: Answer | PequodError) -> bool:
            outcomes.append(outcome)
            self.advance()
            return True

        while (error := super().run(engine, clock, note)) is not None:
            assert isinstance(error, MissingError), "reads write nothing"
            missing.append(error.with_traceback(None))
            self.advance()
        self.index, self.argument_at, self.number_at = start
        if missing:
            return united(missing)
        for outcome in outcomes:
            take(outcome)
        return None


def is_whole(count: int, number: int, rows_max: int) -> bool:
    """Return whether a scan has given all of its rows: behind the greatest number that one returns may be more.

    Args:
        count: The rows that it has given.
        number: Those that it asked for; 0: all.
    """
    return count != rows_max or number == rows_max


def united(missing: Sequence[MissingError]) -> MissingError:
    """Return one error with all that several commands lack."""
    return MissingError(
        [one for error in missing for one in error.lacking], [one for error in missing for one in error.next_groups]
    )
