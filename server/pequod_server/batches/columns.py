"""The columns of a batch: the check that they fit, the cold way through them, and what may refuse commands.

kinds      PUT        GET        commands  (0, PUT, key, value)
arguments  key value  key                  (1, GET, key, b"")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from pequod.commands.columns import bounds_of, needs
from pequod.commands.kinds import ARGUMENT_COUNTS, GET, KINDS, SCAN, WRITES
from pequod.engine import PequodError
from pequod.errors import BadRequestError
from pequod.native import NativeBatch

#: Added to the kind of a command that is refused: the command keeps its place and its arguments, and does not run.
REFUSED: Final = 16
#: What looks at a whole range is a SCAN of it, and what reads nothing is none.
_NO_READ: Final = b"\0"
_READS: Final = {kind.code: SCAN if kind.is_of_range else GET for kind in KINDS if not kind.is_write}
_AS_READS: Final = bytes(_READS.get(code, 0) for code in range(256))

#: The position, the kind and the arguments of a command; the second one is empty where the kind takes one.
Command = tuple[int, int, bytes, bytes]


class CommandJudge(Protocol):
    """Says which commands of a batch must not run."""

    def basis(self) -> object:
        """Return what the judgement depends on: commands are judged again when another value is returned."""
        ...

    def refused(self, commands: Iterator[Command]) -> dict[int, PequodError]:
        """Return the errors of the commands that must not run, by the commands' positions."""
        ...

    def passes(self, batch: NativeBatch) -> bool:
        """Return whether no command of a batch is refused now, as far as that is seen without asking for each."""
        ...


def commands(kinds: bytes, arguments: list[bytes], index: int = 0, argument_at: int = 0) -> Iterator[Command]:
    """Yield the commands from ``index`` on, whose arguments begin at ``argument_at``."""
    for position in range(index, len(kinds)):
        kind = kinds[position]
        if ARGUMENT_COUNTS[kind % REFUSED] == 1:
            yield position, kind, arguments[argument_at], b""
            argument_at += 1
        else:
            yield position, kind, arguments[argument_at], arguments[argument_at + 1]
            argument_at += 2


class ReadColumns(NamedTuple):
    """Columns of reads: each is a GET, or a SCAN of the whole range that it looks at."""

    kinds: bytes
    arguments: list[bytes]


def reads_of(kinds: bytes, arguments: list[bytes], argument_at: int) -> ReadColumns:
    """Return the reads that commands begin with, up to a write, or one that is refused."""
    found = kinds.translate(_AS_READS).partition(_NO_READ)[0]
    return ReadColumns(found, arguments[argument_at : argument_at + 2 * len(found) - found.count(GET)])


def reads(commands: Iterator[Command]) -> Iterator[tuple[int, tuple[bytes, bytes | None]]]:
    """Yield the position of each command that reads, and the range that it reads."""
    for position, kind, first, last in commands:
        if kind not in WRITES:
            yield position, bounds_of(kind, first, last)


def check_columns(kinds: bytes, argument_count: int, number_count: int) -> None:
    """Pass if the columns of a batch fit its kinds.

    Raises:
        BadRequestError: They do not.
    """
    needed = needs(kinds)
    if needed.unknown is not None:
        raise BadRequestError(
            f"there is no command of kind {needed.unknown}; kinds are {KINDS[0].code} to {KINDS[-1].code}"
        )
    for what, count, number in (
        ("arguments", argument_count, needed.argument_count),
        ("numbers", number_count, needed.number_count),
    ):
        if count != number:
            raise BadRequestError(f"the kinds of this batch take {number} {what}, not {count}")
