"""expire, persist and ttl."""

from __future__ import annotations

import math
from typing import Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.freshness import in_session
from pequod.cli.numbers import NumbersCommand
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes, escaped, json_line

app: Final = typer.Typer()

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, byte for byte as the shell passes it.")]
Seconds = Annotated[float, typer.Argument(metavar="SECONDS", help="How long the key lives from now on.")]


@app.command("expire", cls=NumbersCommand, epilog=examples("pequod expire 'session|17' 1800"))
def expire(key: Key, seconds: Seconds, target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Have one key expire after some seconds. With --json: {"was_there": ...}.

    Exit code 1 if the key is not there.
    """
    with in_session(target) as client:
        was_there = client.expire(argument_bytes(key), seconds)
    _told(key, was_there, json)


@app.command("persist", epilog=examples("pequod persist 'session|17'"))
def persist(key: Key, target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Have one key live for ever. With --json: {"was_there": ...}.

    Exit code 1 if the key is not there.
    """
    with in_session(target) as client:
        was_there = client.persist(argument_bytes(key))
    _told(key, was_there, json)


@app.command("ttl", epilog=examples("pequod ttl 'session|17'"))
def ttl(key: Key, target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Print how many seconds a key lives from now on, `never` if it does not expire.

    With --json: {"ttl_s": ..., "expires": ...}; ttl_s is null without a deadline. Exit code 1 if the key is not there.
    """
    with in_session(target) as client:
        left_s = client.ttl(argument_bytes(key))
    if left_s is None:
        _absent(key)
    elif json:
        print(json_line({"ttl_s": None if left_s == math.inf else left_s, "expires": left_s != math.inf}))
    else:
        print("never" if left_s == math.inf else f"{left_s:g}" if left_s >= 1 else f"{left_s:.3f}")


def _told(key: str, was_there: bool, json: bool) -> None:
    if json:
        print(json_line({"was_there": was_there}))
    if not was_there:
        _absent(key)


def _absent(key: str) -> None:
    fail(ExitCode.ABSENT, f"key {escaped(argument_bytes(key))} is not there")
