"""What a server has said behind the line with its address."""

from __future__ import annotations

_WITHOUT_CORE = "without the native core"


def heard(said: str) -> str:
    """Return it without the warning of a server whose native core is switched off, which `make test-pure` does."""
    return "".join(line for line in said.splitlines(keepends=True) if _WITHOUT_CORE not in line)
