"""Where the command `pequod` starts: it looks first whether the package `pequod` is Pequod."""

from __future__ import annotations

import sys

from pequod_installed.names import stranger

#: That of `pequod.cli.exits.ExitCode.REFUSED`, which may not be there.
_REFUSED = 3


def main() -> None:
    """Run the command line, if it is there."""
    found = stranger()
    if found:
        _tell(found)
    from pequod.cli import main as run  # noqa: PLC0415 - it may be another project's

    run()


def _tell(found: str) -> None:
    """Warn of another project's distribution, and end where it is in Pequod's place."""
    print(f"pequod: {found}", file=sys.stderr)
    try:
        from pequod import prefix_end  # noqa: F401, PLC0415 - only to see whether it is there
        from pequod.cli import main as run  # noqa: F401, PLC0415 - the same
    except ImportError:
        sys.exit(_REFUSED)
