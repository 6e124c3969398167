"""Help texts with examples."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """Return the text after the options in a command's help: lines to type, unchanged."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
