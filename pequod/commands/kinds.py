"""The kinds of commands: one row for each, by which clients, the embedded store, the server and the native core go.

    kind    arguments    numbers    key or range    reads or writes    gives
    GET     key                     key             reads              its value, or that it is absent
    SCAN    first last              range           reads              rows

The native core goes by the same rows, which it is handed when it is loaded. The .proto has the table in words; a test
holds these to this one.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

GET: Final = 1
PUT: Final = 2
REMOVE: Final = 3
SCAN: Final = 4
SCAN_LIMIT: Final = 5
SCAN_DOWN: Final = 6
COUNT: Final = 7
PUT_IF: Final = 8
REMOVE_IF: Final = 9
ADD: Final = 10
PUT_TTL: Final = 11
EXPIRE: Final = 12
TTL: Final = 13

# The statuses of commands in a reply.
OK: Final = 0
ABSENT: Final = 1
FAILED: Final = 2
#: The first rows of a scan that goes on in the next piece of the reply.
PART: Final = 3
#: A condition did not hold, and the reply has the present value; of a key that is not there the status is ABSENT.
UNMET: Final = 4


class Gives(Enum):
    """What a command returns."""

    #: A value, or that the key is absent.
    VALUE = 0
    NOTHING = 1
    #: Whether the key was there.
    WAS_THERE = 2
    ROWS = 3
    COUNT = 4
    #: That a condition held, or the present value. Who asks this learns what a read would tell.
    MET = 5
    #: How long the key lives from now on, or that it is absent.
    REMAINING = 6


class CommandKind(NamedTuple):
    """A kind of command."""

    #: The byte that stands for it in a batch.
    code: int
    name: str
    #: What its arguments are, in their order: the first one is a key, or the first two are the bounds of a range.
    arguments: tuple[str, ...]
    numbers: tuple[str, ...]
    is_write: bool
    gives: Gives
    #: Whether a scan reads from the end of its range down.
    is_down: bool = False

    @property
    def is_of_range(self) -> bool:
        """Whether it looks at a range of keys, and not at one key."""
        return self.arguments[0] == "first"


KINDS: Final = (
    CommandKind(GET, "GET", ("key",), (), is_write=False, gives=Gives.VALUE),
    CommandKind(PUT, "PUT", ("key", "value"), (), is_write=True, gives=Gives.NOTHING),
    CommandKind(REMOVE, "REMOVE", ("key",), (), is_write=True, gives=Gives.WAS_THERE),
    CommandKind(SCAN, "SCAN", ("first", "last"), (), is_write=False, gives=Gives.ROWS),
    CommandKind(SCAN_LIMIT, "SCAN_LIMIT", ("first", "last"), ("limit",), is_write=False, gives=Gives.ROWS),
    CommandKind(SCAN_DOWN, "SCAN_DOWN", ("first", "last"), ("limit",), is_write=False, gives=Gives.ROWS, is_down=True),
    CommandKind(COUNT, "COUNT", ("first", "last"), (), is_write=False, gives=Gives.COUNT),
    CommandKind(
        PUT_IF, "PUT_IF", ("key", "value", "expected"), ("condition", "ttl_ms"), is_write=True, gives=Gives.MET
    ),
    CommandKind(REMOVE_IF, "REMOVE_IF", ("key", "expected"), ("condition",), is_write=True, gives=Gives.MET),
    CommandKind(ADD, "ADD", ("key", "delta"), (), is_write=True, gives=Gives.VALUE),
    CommandKind(PUT_TTL, "PUT_TTL", ("key", "value"), ("ttl_ms",), is_write=True, gives=Gives.NOTHING),
    CommandKind(EXPIRE, "EXPIRE", ("key",), ("ttl_ms",), is_write=True, gives=Gives.WAS_THERE),
    CommandKind(TTL, "TTL", ("key",), (), is_write=False, gives=Gives.REMAINING),
)

KIND_OF: Final = {kind.code: kind for kind in KINDS}
NAMES: Final = {kind.code: kind.name for kind in KINDS}
GIVES: Final = {kind.code: kind.gives for kind in KINDS}
WRITES: Final = frozenset(kind.code for kind in KINDS if kind.is_write)
RANGES: Final = frozenset(kind.code for kind in KINDS if kind.is_of_range)
SCANS: Final = frozenset(kind.code for kind in KINDS if kind.gives is Gives.ROWS)
#: Writes under a condition.
CONDITIONAL: Final = frozenset(kind.code for kind in KINDS if kind.gives is Gives.MET)
#: Writes that go by the present value and tell of it: their caller needs the right to read the key, too.
DECIDED: Final = CONDITIONAL | {kind.code for kind in KINDS if kind.is_write and kind.gives is Gives.VALUE}
#: Writes that may give a key a deadline.
TIMED: Final = frozenset(kind.code for kind in KINDS if "ttl_ms" in kind.numbers)
#: Writes of which a key, and a value or none, say everything.
PLAIN_WRITES: Final = frozenset({PUT, REMOVE})


def _by_code(counts: dict[int, int]) -> bytes:
    return bytes(counts.get(code, 0) for code in range(256))


#: The most arguments, and the most numbers, that a command takes.
ARGUMENTS_MAX: Final = max(len(kind.arguments) for kind in KINDS)
NUMBERS_MAX: Final = max(len(kind.numbers) for kind in KINDS)
#: For `bytes.translate`, and by index: how many arguments and numbers a command takes; 0 for what is no kind.
ARGUMENT_COUNTS: Final = _by_code({kind.code: len(kind.arguments) for kind in KINDS})
NUMBER_COUNTS: Final = _by_code({kind.code: len(kind.numbers) for kind in KINDS})
#: How many times fewer rows a scan reads at a time once memory is short, and how often it runs for a row alone then.
SCAN_SHRINK: Final = 8
SCAN_TRIES_MAX: Final = 4


def packed() -> bytes:
    """Return the table as the native core takes it: five bytes for each byte, all 0 where it stands for no kind."""
    rows = {
        kind.code: bytes((len(kind.arguments), len(kind.numbers), kind.is_of_range, kind.is_write, kind.gives.value))
        for kind in KINDS
    }
    return b"".join(rows.get(code, bytes(5)) for code in range(256))
