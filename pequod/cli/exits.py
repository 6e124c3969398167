"""Exit codes, and the last message of a command.

docs/cli.md has the table, for these commands and for `pequod serve`.

Results go to standard output, everything else to standard error.
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import NoReturn

import typer


class ExitCode(IntEnum):
    """How a command ended, for the shell."""

    DONE = 0
    ABSENT = 1
    #: A benchmark found wrong answers.
    WRONG = 1
    USAGE = 2
    REFUSED = 3
    UNREACHABLE = 4
    #: Results could not be written.
    UNWRITTEN = 5
    INTERRUPTED = 130


def fail(code: ExitCode, message: str) -> NoReturn:
    """Print on standard error what went wrong and what to do, and end the command."""
    say(message)
    raise typer.Exit(code)


def say(message: str) -> None:
    """Print a message beside the results, on standard error."""
    print(f"pequod: {message}", file=sys.stderr)
