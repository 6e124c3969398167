"""The columns of a batch: the check that they fit, the cold way through them, and what may refuse commands.

kinds      PUT        GET        commands  (0, PUT, key, value)
arguments  key value  key                  (1, GET, key, b"")
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from pequod_proto.commands import COUNT, GET, PUT, REMOVE, SCAN, SCAN_DOWN, SCAN_LIMIT

from pequod.engine import PequodError
from pequod.errors import BadRequestError
from pequod.native import NativeBatch

#: How many arguments and numbers a command takes.
TAKES: Final = {
    GET: (1, 0),
    PUT: (2, 0),
    REMOVE: (1, 0),
    SCAN: (2, 0),
    SCAN_LIMIT: (2, 1),
    SCAN_DOWN: (2, 1),
    COUNT: (2, 0),
}
#: Added to the kind of a command that is refused: the command keeps its place and its arguments, and does not run.
REFUSED: Final = 16
#: What looks at a whole range is a SCAN of it, and what reads nothing is none.
_NO_READ: Final = b"\0"
_AS_READS: Final = bytes(
    GET if kind == GET else SCAN if kind in (SCAN, SCAN_LIMIT, SCAN_DOWN, COUNT) else 0 for kind in range(256)
)

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
        if TAKES[kind % REFUSED][0] == 1:
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
        if kind not in (PUT, REMOVE):
            yield position, (first, first + b"\0" if kind == GET else last or None)


def check_columns(kinds: bytes, argument_count: int, number_count: int) -> None:
    """Pass if the columns of a batch fit its kinds.

    Raises:
        BadRequestError: They do not.
    """
    count = kinds.count
    scans = count(SCAN)
    puts = count(PUT)
    gets = count(GET)
    rest = len(kinds) - scans - puts - gets
    needed = gets + 2 * (puts + scans)
    needed_numbers = 0
    if rest:
        removes, counts = count(REMOVE), count(COUNT)
        needed_numbers = count(SCAN_LIMIT) + count(SCAN_DOWN)
        if removes + counts + needed_numbers != rest:
            unknown = sorted(set(kinds) - set(range(GET, COUNT + 1)))
            raise BadRequestError(f"there is no command of kind {unknown[0]}; kinds are {GET} to {COUNT}")
        needed += removes + 2 * (counts + needed_numbers)
    if argument_count != needed:
        raise BadRequestError(f"the kinds of this batch take {needed} arguments, not {argument_count}")
    if number_count != needed_numbers:
        raise BadRequestError(f"the kinds of this batch take {needed_numbers} numbers, not {number_count}")
