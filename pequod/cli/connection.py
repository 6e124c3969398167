"""Reaching a server: the `--target` option, and which exit code an error has."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from pequod.cli.exits import ExitCode

if TYPE_CHECKING:
    from pequod.client import Client

DEFAULT_TARGET = "127.0.0.1:7744"

Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        envvar="PEQUOD_TARGET",
        metavar="HOST:PORT",
        help="The server to talk to.",
        show_default=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


@contextmanager
def connected(target: str) -> Iterator[Client]:
    """Open a client for the length of one command."""
    from pequod.client import Client

    with Client(target) as client:
        yield client


def exit_code(error: Exception) -> ExitCode | None:
    """Return the code for an error that Pequod foresees, None for anything else."""
    if "pequod.engine.errors" not in sys.modules:
        return None  # what was never imported was not raised; importing it here would make `--help` slow
    from pequod.client import DeadlineExceededError, UnavailableError
    from pequod.engine.errors import PequodError

    if isinstance(error, UnavailableError | DeadlineExceededError):
        return ExitCode.UNREACHABLE
    if isinstance(error, PequodError):
        return ExitCode.REFUSED
    return None
