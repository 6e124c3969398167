"""The options that say how fresh an answer has to be, and the session of the shell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import connected
from pequod.cli.exits import ExitCode, fail, say

if TYPE_CHECKING:
    from pequod.client import Client
    from pequod.client.sync import ServerSession
    from pequod.freshness import Freshness, Token

After = Annotated[
    str | None,
    typer.Option("--after", metavar="TOKEN", help="Show at least the state of a token, as `put --token` prints it."),
]
Latest = Annotated[bool, typer.Option("--latest", help="Show at least everything that is committed by now.")]
MaxAge = Annotated[
    str | None, typer.Option("--max-age", metavar="TIME", help="Show nothing older than this: 2s, 500ms, 1m.")
]
Wait = Annotated[
    str | None,
    typer.Option("--wait", metavar="TIME", help="How long the server may wait until it is as fresh; 1s without it."),
]
ShowToken = Annotated[
    bool, typer.Option("--token", help="Print the token of the write, for --after: it names a state with the write.")
]

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ms|s|m|h|)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(slots=True)
class Held:
    """What the statements of a shell have seen so far."""

    #: As text; empty before the first reply.
    token: str = ""


#: Set by a shell while it runs a statement.
held_by_shell: Final[ContextVar[Held | None]] = ContextVar("held_by_shell", default=None)


def asked(after: str | None, latest: bool, max_age: str | None, wait: str | None) -> Freshness | None:
    """Return how fresh an answer has to be, None if the options do not say it."""
    named = [name for name, value in (("--after", after), ("--latest", latest), ("--max-age", max_age)) if value]
    if len(named) > 1:
        fail(ExitCode.USAGE, f"{' and '.join(named)} do not go together: a read has one level")
    if not named:
        if wait is not None:
            fail(ExitCode.USAGE, "--wait goes with --after, --latest or --max-age")
        return None
    from pequod import freshness

    wait_s = freshness.WAIT_S if wait is None else duration_s("--wait", wait)
    if after:
        return freshness.after(after, wait_s=wait_s)
    if max_age:
        return freshness.max_age(duration_s("--max-age", max_age), wait_s=wait_s)
    return freshness.Latest(wait_s)


def duration_s(option: str, text: str) -> float:
    """Return a duration of the command line in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        fail(ExitCode.USAGE, f"{option} is {text!r}; it is a number with ms, s, m or h behind it, such as 2s")
    return float(match[1]) * _UNITS_S[match[2]]


@contextmanager
def in_session(target: str) -> Iterator[Client | ServerSession]:
    """Open a client for one command; in a shell, a session that goes on from the shell's earlier commands."""
    from pequod.errors import TokenLostError

    held = held_by_shell.get()
    with connected(target) as client:
        if held is None:
            yield client
            return
        session = client.session(held.token or None)
        try:
            yield session
        except TokenLostError:
            held.token = ""
            say("the shell forgets what it has seen, and its next command begins anew")
            raise
        except BaseException:
            held.token = shown(session.token)
            raise
        held.token = shown(session.token)


def shown(token: Token) -> str:
    """Return a token as text, an empty one if it says nothing: of a server that gives none."""
    return str(token) if token.positions else ""
