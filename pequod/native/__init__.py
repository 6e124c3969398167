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
from typing import TYPE_CHECKING, Final

from pequod.commands.kinds import packed

if TYPE_CHECKING:
    from pequod.native import _hot

    NativeBatch = _hot.Batch
    NativeKernel = _hot.Kernel
    Route = _hot.Route
else:
    # Names for annotations, which nothing looks at where the core is not.
    NativeBatch = NativeKernel = Route = object

#: An extension of another number was built from other sources, and is not taken.
_INTERFACE: Final = 28


#: Where ranges of keys start, and where they end.
KeyBounds = tuple[list[bytes], list[bytes | None]]


def _load() -> tuple[ModuleType | None, ImportError | None]:
    try:
        core = import_module("pequod.native._hot")
    except ImportError as error:
        return None, error
    if getattr(core, "INTERFACE", 0) != _INTERFACE:
        return None, ImportError("it was compiled from other sources")
    core.use_kinds(packed())
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
