"""Why the native core is not there, and what to do, in one line."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from pequod_installed.names import how_to_compile

_REASON_FILE: Final = "not_compiled.txt"


def why_absent(error: ImportError, folder: Path) -> str:
    """Return why the core could not be loaded, and what to do.

    Args:
        error: That of importing it.
        folder: Where it would be.
    """
    if os.environ.get("PEQUOD_PURE", "0") not in ("", "0"):
        return "PEQUOD_PURE is set; unset it"
    return f"{_reason(error, folder)}; {how_to_compile()}"


def _reason(error: ImportError, folder: Path) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return f"the core cannot be loaded: {error}"
    noted = folder / _REASON_FILE
    if noted.is_file():
        return f"the core was not compiled when Pequod was installed: {noted.read_text('utf-8').strip()}"
    others = sorted(file.name for file in folder.glob("_hot.*.so"))
    if others:
        return f"there is no core for this Python ({sys.implementation.cache_tag}), but {', '.join(others)}"
    return "the core has not been compiled"
