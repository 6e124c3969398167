"""Help texts that teach."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return what follows the options in a command's help: lines to type, as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
