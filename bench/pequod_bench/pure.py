"""Whether the engine is the pure Python one, whose parts can be replaced; those of a compiled one cannot."""

from __future__ import annotations

from pequod.engine import PequodError
from pequod.engine.base import rows


class CompiledEngineError(PequodError):
    """The engine is compiled."""


def is_pure_engine() -> bool:
    """Tell whether the engine is the pure Python one."""
    return str(rows.__file__).endswith(".py")


def require_pure_engine() -> None:
    """Refuse a compiled engine.

    Raises:
        CompiledEngineError: It is.
    """
    if not is_pure_engine():
        raise CompiledEngineError(
            "this engine is compiled and cannot be taken apart; install the pure Python one, for instance from a "
            "checkout with make install"
        )
