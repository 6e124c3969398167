"""join add, join apply, join replace, join list and join drop."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pequod.answers.joins import Join, JoinChanges
from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.freshness import in_session
from pequod.cli.inspect import explain_join
from pequod.cli.replacing import watched
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

_HELP: Final = """Install, replace, list and drop cache joins.

\b
A cache join says how computed keys follow from others:
    t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>
    ^ what is computed            ^ where from
<name> is a slot that runs to the next |, <name:10> one of exactly 10 bytes. One source gives the value
(copy, count, sum, avg, min or max), all others are check, check? or unless. Between = and the sources may stand push
(the default: kept up to date), pull (computed on each read) or snapshot SECONDS (kept that long).
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
        _print_warnings(join)


def _print_warnings(join: Join) -> None:
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


@app.command(
    "replace",
    epilog=examples(
        "pequod join replace karma 'karma|<author> = sum vote|<author>|<id>|<voter>'",
        "pequod join replace karma --undo",
        "pequod join replace karma --cancel",
    ),
)
def replace(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name, as `pequod join list` prints it.")],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The join that takes its place; @FILE or - reads it.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Put back what it was before the last time.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End a replacement that is under way.")] = False,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Put a join in the place of an installed one, and print it once it is there.

    It is built beside the old one for the ranges that were read; reads see the old rows until all see the new ones, at
    one moment. Ctrl-C cancels it: then nothing has changed. Exit code 3 if it cannot be installed.
    """
    if (text is not None) + undo + cancel != 1:
        fail(ExitCode.USAGE, "give a TEXT, or --undo, or --cancel")
    with in_session(target) as client:
        if cancel:
            under_way = [one for one in client.replacements() if one.join == name and not one.ended]
            client.cancel_replacement(name)
            if not under_way:
                fail(ExitCode.ABSENT, f"no replacement of the join {name!r} is under way; nothing was cancelled")
            return
        declaration = None if text is None else _declarations(text)
        status = watched(client, name, declaration)
    _print_join(Join(status.join, status.text), json)


@app.command(
    "apply",
    epilog=examples(
        "pequod join apply joins.pequod --dry-run",
        "pequod join apply joins.pequod",
    ),
)
def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="All joins, with ; between; - reads them.")],
    target: Target = DEFAULT_TARGET,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing: only print what would change.")] = False,
    json: Json = False,
) -> None:
    """Make the joins of a file the only ones, and print what changes: + is added, - dropped, = stays.

    Joins that are installed already stay with their rows, however they are written. One that differs is replaced: the
    new one is added, then the old one is dropped, and its rows are computed again when they are read. Nothing is
    changed if a join is wrong, or would be hidden by another one: exit code 3 with the place and a hint. Nor if clients
    have written keys that a new join computes, which --dry-run does not look for. If the command fails in between, the
    same command ends the work.

    With --json a line is {"change": "add", "drop" or "keep", "name": ..., "text": ..., "warnings": [...]}; with
    --dry-run the name of a new join is null.
    """
    declarations = _declarations(file if file == "-" else f"@{file}")
    logging.getLogger("pequod.joins").addHandler(logging.NullHandler())
    with in_session(target) as client:
        planned = client.set_joins(declarations, dry_run=True)
        if not json:
            _print_changes(planned)
        changes = planned if dry_run else client.set_joins(declarations)
    if json:
        for change, joins in (("drop", changes.dropped), ("add", changes.added), ("keep", changes.kept)):
            for join in joins:
                shown = {"change": change, "name": join.name or None, "text": join.text}
                print(json_line({**shown, "warnings": list(join.warnings)}))
        return
    counts = f"{len(changes.added)} added, {len(changes.dropped)} dropped, {len(changes.kept)} kept"
    print(f"{counts}: nothing is changed yet" if dry_run and changes else counts)
    for join in changes.added:
        _print_warnings(join)


def _print_changes(changes: JoinChanges) -> None:
    for mark, joins in (("-", changes.dropped), ("+", changes.added), ("=", changes.kept)):
        for join in joins:
            print(f"{mark} {join.text}", flush=True)


@app.command("list")
def list_all(target: Target = DEFAULT_TARGET, json: Json = False) -> None:
    """Print the installed joins: name, tab, declaration.

    With --json a line is {"name": ..., "text": ..., "warnings": [...]}.
    """
    with in_session(target) as client:
        installed, replacements = client.joins(), client.replacements()
    for join in installed:
        _print_join(join, json)
    for one in replacements:
        if not one.ended:
            built = f"{one.ranges_built} of {one.ranges_expected} ranges"
            waits = f"; it waits for {', '.join(one.waits_for)}" if one.waits_for else ""
            print(f"pequod: join {one.join} is being replaced, {built} are built{waits}: {one.text}", file=sys.stderr)


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
