"""The native core, where it is built: the structures and loops that most of the engine's time goes into.

Each has a twin in Python, which says what it does, is what tests compare it with, and runs where no C++ compiler was,
or where the environment variable PEQUOD_PURE is set. The module of the twin puts the native one in its place:

    class SortedRows: ...

    if not TYPE_CHECKING and core is not None:
        SortedRows = core.SortedRows

So type checkers see the Python class alone.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, Protocol

#: An extension of another number was built from other sources, and is not taken.
_INTERFACE: Final = 17


#: Where ranges of keys start, and where they end.
KeyBounds = tuple[list[bytes], list[bytes | None]]


class NativeKernel(Protocol):
    """How a timeline gets what is in its sources; see pequod/native/collect.hpp."""

    #: Whether no join computes rows of the sources, and neither watches nor joins follow the timeline's rows.
    is_quiet: bool


class NativeBatch(Protocol):
    """A batch of commands from the bytes of its message to those of its reply; see pequod/native/batch.cpp."""

    @property
    def kinds(self) -> bytes:
        """The kinds of its commands."""

    @property
    def index(self) -> int:
        """The next command."""

    @property
    def argument_at(self) -> int:
        """Where its arguments are."""

    @property
    def number_at(self) -> int:
        """Where its number is."""

    @property
    def freshness(self) -> bytes:
        """How fresh the reads have to be, as bytes; empty: as the server's settings say."""

    @property
    def trace_parent(self) -> bytes:
        """The span of the caller, as W3C's header says it; empty: none."""

    @property
    def trace_state(self) -> bytes:
        """What the caller's tracing system says of the span."""

    @property
    def room(self) -> int:
        """How many bytes the reply still has room for."""

    @property
    def row_count(self) -> int:
        """How many rows scans gave."""

    def first_argument(self) -> tuple[bytes, ...]:
        """Return the first argument, if there is one."""

    def is_within(self, readable: KeyBounds, writable: KeyBounds) -> bool:
        """Return whether all keys that the commands read, and all that they write, lie in ranges.

        Args:
            readable: Where the ranges start, which ascend and do not touch, and where each ends; None: nowhere.
            writable: The same for keys that are written.
        """

    def run(self, engine: object, now: float) -> bool:
        """Run quick commands on an engine, up to one that is not quick; return whether there is one."""

    def command(self) -> tuple[int, bytes, bytes, int]:
        """Return kind, arguments and number of the next command; what it does not take is empty, or 0."""

    def rows(self, keys: list[bytes], values: list[bytes]) -> bool:
        """Take the rows of the next command, a scan; return False, and change nothing, if there is no room."""

    def value(self, value: bytes) -> bool:
        """Take the value of the next command, a GET; return False, and change nothing, if there is no room."""

    def count(self, count: int) -> None:
        """Take what the next command, a COUNT, gave."""

    def done(self) -> None:
        """Note that the next command, a write, was done."""

    def absent(self) -> None:
        """Note that there is no such key as the next command names."""

    def failed(self, error: bytes) -> bool:
        """Take the `CommandError` of the next command; return whether the reply has room for more."""

    def reply(self, server_id: int, revision: int, rest: bytes = b"") -> bytes:
        """Return the bytes of the reply, with what has run so far; ``rest`` are the bytes of further fields."""


class Route(Protocol):
    """The way from a written key to those who wait for it; see pequod/native/routes.hpp."""

    #: Whether changes of the rows go to watches or to other joins.
    is_followed: bool


def _load() -> tuple[ModuleType | None, ImportError | None]:
    try:
        core = import_module("pequod.native._hot")
    except ImportError as error:
        return None, error
    if getattr(core, "INTERFACE", 0) != _INTERFACE:
        return None, ImportError("it was compiled from other sources")
    return core, None


_loaded: Final = _load()
core: Final = _loaded[0]
#: What the engine runs on, in words.
FLAVOUR: Final = "pure Python" if core is None else "native"


def why_pure() -> str | None:
    """Return why the engine runs in pure Python, and what to do; None if it does not."""
    if _loaded[1] is None:
        return None
    from pequod.native.absence import why_absent  # noqa: PLC0415 - where the core is, nothing asks

    return why_absent(_loaded[1], Path(__file__).parent)


def parse_batch(message: bytes, commands_max: int, rows_max: int, reply_bytes_max: int) -> NativeBatch | None:
    """Return the batch of an `ExecuteRequest`, None if its bytes are unusual or not to be taken, or nothing is native.

    Args:
        message: The bytes.
        commands_max: A batch of more commands is not to be taken.
        rows_max: A scan of as many rows is not quick.
        reply_bytes_max: How many bytes the rows and errors of the reply may have.
    """
    if core is None:
        return None
    batch: NativeBatch | None = core.Batch.parse(message, commands_max, rows_max, reply_bytes_max)
    return batch
