"""join add, join list and join drop."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.freshness import in_session
from pequod.cli.inspect import explain_join
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

if TYPE_CHECKING:
    from pequod.client import Join

_HELP: Final = """Install, list and drop cache joins.

\b
A cache join says how computed keys follow from others:
    t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>
    ^ what is computed            ^ where from
<name> is a slot that runs to the next |, <name:10> one of exactly 10 bytes. One source gives the value
(copy, count, sum, min or max), all others are check. Between = and the sources may stand push (the default:
kept up to date), pull (computed on each read) or snapshot SECONDS (kept that long).
"""

app: Final = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None)


@app.command(
    "add",
    epilog=examples(
        "pequod join add 't|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>'",
        "pequod join add 'karma|<author> = count vote|<author>|<id>|<voter>'",
        "pequod join add @joins.pequod",
        "echo 'top|<id> = max score|<id>|<judge>' | pequod join add -",
    ),
)
def add(
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="The join, or several with ; between; @FILE or - reads them."),
    ],
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Install one join or several, all or none, and print their names.

    Exit code 3 with the place and a hint if a join cannot be installed.
    """
    declarations = _declarations(text)
    # The client logs the warnings, which are printed here.
    logging.getLogger("pequod.joins").addHandler(logging.NullHandler())
    with in_session(target) as client:
        installed = client.add_join(declarations)
    for join in installed:
        _print_join(join, json)


def _print_join(join: Join, json: bool) -> None:
    if json:
        print(json_line({"name": join.name, "text": join.text, "warnings": list(join.warnings)}))
    else:
        print(f"{join.name}\t{join.text}")
        for warning in join.warnings:
            print(f"pequod: warning: join {join.name}: {warning}", file=sys.stderr)


def _declarations(text: str) -> str:
    try:
        if text == "-":
            return sys.stdin.read()
        if text.startswith("@"):
            return Path(text[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fail(ExitCode.USAGE, f"cannot read the joins: {error}")
    return text


@app.command("list")
def list_all(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Print the installed joins: name, tab, declaration.

    With --json a line is {"name": ..., "text": ..., "warnings": [...]}.
    """
    with in_session(target) as client:
        installed = client.joins()
    for join in installed:
        _print_join(join, json)


@app.command(
    "drop",
    epilog=examples(
        "pequod join drop t",
    ),
)
def drop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, as `pequod join list` prints it.")],
    target: Target = DEFAULT_TARGET,
) -> None:
    """Drop a join, and with it everything that it computed."""
    with in_session(target) as client:
        client.drop_join(name)


app.command("explain", epilog=examples("pequod join explain t"))(explain_join)
