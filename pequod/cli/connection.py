"""Reaching a server: the `--target` option, and the exit codes of errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, TypedDict

import typer

from pequod.cli.exits import ExitCode, fail

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
        help="The server to talk to, or pequod+cluster://HOST:PORT,HOST:PORT for a cluster.",
        show_default=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


class ConnectionSettings(TypedDict, total=False):
    """The settings of a client that say how to reach a server."""

    tls: bool
    ca: str | None
    certificate: str | None
    key: str | None
    token: str | None
    insecure: bool
    #: Present only if `--timeout` is given: commands have their own defaults.
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Security:
    """The options before the command that say how to reach servers."""

    tls: bool = False
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    token_file: str | None = None
    insecure: bool = False


#: Set before the command runs; typer has a click of its own, whose context cannot be asked for in public.
present_security: Final = ContextVar("present_security", default=Security())  # noqa: B039 - frozen
#: The value of `--timeout`, None without it.
present_timeout_s: Final[ContextVar[float | None]] = ContextVar("present_timeout_s", default=None)


@contextmanager
def connected(target: str) -> Iterator[Client]:
    """Open a client for one command."""
    from pequod.client import Client

    # Without retries: a person sees at once that there is no server, and can repeat the command.
    with Client(target, retries=0, **connection_settings()) as client:
        yield client


def connection_settings() -> ConnectionSettings:
    """Return the arguments for clients that follow from the options before the command."""
    security = present_security.get()
    settings: ConnectionSettings = {
        "tls": security.tls,
        "ca": security.ca,
        "certificate": security.certificate,
        "key": security.key,
        "token": _token(security),
        "insecure": security.insecure,
    }
    if (timeout_s := present_timeout_s.get()) is not None:
        settings["timeout_s"] = timeout_s
    return settings


def _token(security: Security) -> str | None:
    if security.token_file is None:
        return os.environ.get("PEQUOD_TOKEN") or None
    from pathlib import Path

    from pequod.machine import fault_of_secret

    if fault := fault_of_secret(Path(security.token_file)):
        print(f"pequod: warning: {fault}", file=sys.stderr)
    try:
        return Path(security.token_file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the token: {error}")


def exit_code(error: Exception) -> ExitCode | None:
    """Return the exit code of an error of Pequod's, None for any other error."""
    if "pequod.language.errors" not in sys.modules:
        return None  # a class that was never imported was not raised; importing it here would make `--help` slow
    from pequod.errors import (
        CoordinatorUnavailableError,
        DeadlineExceededError,
        InvalidTokenError,
        PequodError,
        SettingError,
        UnavailableError,
    )

    if isinstance(error, SettingError | InvalidTokenError):
        return ExitCode.USAGE
    if isinstance(error, UnavailableError | DeadlineExceededError | CoordinatorUnavailableError):
        return ExitCode.UNREACHABLE
    if isinstance(error, PequodError):
        return ExitCode.REFUSED
    return None
