"""put, get, rm, scan and count."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Annotated, Final

import typer

from pequod.cli.condition import IfAbsent, IfPresent, IfValue, asked_condition, told
from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.freshness import After, Latest, MaxAge, ShowToken, Wait, asked, in_session, shown
from pequod.cli.numbers import NumbersCommand
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes, escaped, json_bytes, json_line

app: Final = typer.Typer()

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, byte for byte as the shell passes it.")]
First = Annotated[str, typer.Argument(metavar="FIRST", help="The first key of the range.")]
Last = Annotated[
    str | None,
    typer.Argument(metavar="LAST", help="The end of the range; it is not in it. Without it: to the very end."),
]
Ttl = Annotated[
    float | None, typer.Option("--ttl", metavar="SECONDS", help="The key expires after this time. Without it: never.")
]
KeepTtl = Annotated[bool, typer.Option("--keep-ttl", help="The key expires when it would have without this write.")]
Prefix = Annotated[bool, typer.Option("--prefix", "-p", help="Take every key that starts with FIRST.")]


@app.command(
    "put",
    cls=NumbersCommand,
    epilog=examples(
        "pequod put 'p|bob|0000000100' 'hello'",
        "pequod put 'page|home' < home.html",
        "pequod put 's|ann|bob' 1 --token               (for a `get --after` elsewhere)",
        "pequod put 'balance|ann' -12",
        "pequod put -- 'note|1' -x                     (-- before other arguments that start with -)",
        "pequod put --if-absent 'user|ann' 1           (exit code 1 if the name is taken)",
        "pequod put --if-value red 'light|1' green",
        "pequod put --ttl 1800 'session|17' ann",
        "pequod put --keep-ttl 'session|17' bob        (it expires when it would have)",
    ),
)
def put(
    key: Key,
    value: Annotated[
        str | None,
        typer.Argument(metavar="[VALUE]", help="The value; without it, standard input is the value."),
    ] = None,
    if_absent: IfAbsent = False,
    if_present: IfPresent = False,
    if_value: IfValue = None,
    ttl: Ttl = None,
    keep_ttl: KeepTtl = False,
    token: ShowToken = False,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Write one key; the joins update what they compute from it.

    With --token the token of the write is printed, with --json {"token": ...}: `get --after TOKEN` shows the write,
    whichever server beside the same database it asks.

    With --if-absent, --if-present or --if-value nothing is written unless the condition holds. Exit code 1 if it does
    not: the present value is printed as `get` prints it, with --json {"token": ..., "met": ..., "value": ...}.
    """
    condition = asked_condition(if_absent, if_present, if_value)
    if ttl is not None and keep_ttl:
        fail(ExitCode.USAGE, "give --ttl or --keep-ttl, not both")
    if value is None and sys.stdin.isatty():
        fail(ExitCode.USAGE, "put needs a VALUE, or the value on standard input: pequod put KEY < FILE")
    content = sys.stdin.buffer.read() if value is None else argument_bytes(value)
    with in_session(target) as client:
        if condition is None:
            client.put(argument_bytes(key), content, ttl_s=ttl, keep_ttl=keep_ttl)
            outcome = None
        else:
            outcome = client.put(argument_bytes(key), content, condition=condition, ttl_s=ttl, keep_ttl=keep_ttl)
        written = shown(client.last_token)
    if outcome is not None:
        told(argument_bytes(key), outcome, {"token": written or None} if json else None)
        if token and not json:
            print(written)
    elif json:
        print(json_line({"token": written or None}))
    elif token:
        print(written)


@app.command(
    "get",
    epilog=examples(
        "pequod get 'p|bob|0000000100'",
        "pequod get --json 'karma|ann'",
        "pequod get 'karma|ann' --latest",
    ),
)
def get(
    key: Key,
    after: After = None,
    latest: Latest = False,
    max_age: MaxAge = None,
    wait: Wait = None,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Print the value of one key: its bytes as they are and a newline.

    Exit code 1 if the key is not there. With --json: {"key": ..., "value": ...}, where the value is null if
    the key is not there, and bytes that are not UTF-8 are shown as {"base64": ...}.
    """
    wanted, freshness = argument_bytes(key), asked(after, latest, max_age, wait)
    with in_session(target) as client:
        value = client.get(wanted, freshness=freshness)
    if json:
        shown = None if value is None else json_bytes(value)
        print(json_line({"key": json_bytes(wanted), "value": shown}))
    elif value is not None:
        sys.stdout.buffer.write(value + b"\n")
    if value is None:
        fail(ExitCode.ABSENT, f"key {escaped(wanted)} is not there")


@app.command(
    "rm",
    epilog=examples(
        "pequod rm 's|ann|bob'",
        "pequod rm --prefix 's|ann|'",
        "pequod rm --if-value me 'lock|a'              (only if it is still mine)",
        "pequod rm --range 'p|bob|' 'p|bob|0000000100'   (all before 100)",
    ),
)
def remove(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key; with --range, the first one.")],
    last: Annotated[
        str | None, typer.Argument(metavar="[LAST]", help="With --range: the end; it is not removed.")
    ] = None,
    by_range: Annotated[bool, typer.Option("--range", help="Remove the keys from KEY to LAST.")] = False,
    prefix: Annotated[bool, typer.Option("--prefix", "-p", help="Remove every key that starts with KEY.")] = False,
    if_value: IfValue = None,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Remove one key, or the keys of a range and print their number. With --json: {"removed": ...}.

    Exit code 1 if one key was named and is not there. In a range, computed keys are left to their joins. With
    --if-value the key stays unless it has this value; exit code 1 then, as for put.
    """
    if if_value is not None and (by_range or prefix):
        fail(ExitCode.USAGE, "--if-value is for one key, without --range and --prefix")
    if by_range and (prefix or last is None):
        fail(ExitCode.USAGE, "--range takes KEY and LAST, and no --prefix")
    if last is not None and not by_range:
        fail(ExitCode.USAGE, "to remove from KEY to LAST, say --range; several keys take a command each")
    if by_range or prefix:
        start, end = key_range(key, last, prefix)
        with in_session(target) as client:
            count = client.remove_range(start, end)
        print(json_line({"removed": count}) if json else count)
        return
    wanted = argument_bytes(key)
    condition = asked_condition(False, False, if_value)
    with in_session(target) as client:
        if condition is not None:
            outcome = client.remove(wanted, condition=condition)
            told(wanted, outcome, {"removed": int(bool(outcome))} if json else None)
            return
        was_there = client.remove(wanted)
    if json:
        print(json_line({"removed": int(was_there)}))
    if not was_there:
        fail(ExitCode.ABSENT, f"key {escaped(wanted)} is not there")


@app.command(
    "scan",
    epilog=examples(
        "pequod scan --prefix 't|ann|'",
        "pequod scan 't|ann|0000000100' 't|ann}'       (} comes right after |)",
        "pequod scan --prefix 't|ann|' --reverse --limit 10",
        "pequod scan --prefix 't|ann|' --keys-only",
        "pequod scan ''                                 (everything)",
    ),
)
def scan(
    first: First,
    last: Last = None,
    prefix: Prefix = False,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=0, help="Print at most this many rows.")] = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="From the last key to the first.")] = False,
    keys_only: Annotated[bool, typer.Option("--keys-only", "-k", help="Print no values, and fetch none.")] = False,
    after: After = None,
    latest: Latest = False,
    max_age: MaxAge = None,
    wait: Wait = None,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    r"""Print the keys of a range with their values, in key order, computed ones included.

    A line is the key, a tab and the value, with control characters, backslashes and bytes that are not UTF-8
    written as escapes (\t, \n, \\, \xff). With --json a line is {"key": ..., "value": ...}, where bytes
    that are not UTF-8 are shown as {"base64": ...}.
    """
    start, end = key_range(first, last, prefix)
    freshness = asked(after, latest, max_age, wait)
    with in_session(target) as client:
        if keys_only:
            for found in client.keys_iter(start, end, limit=limit, reverse=reverse, freshness=freshness):
                print(json_line({"key": json_bytes(found)}) if json else escaped(found))
        else:
            _print_rows(client.scan_iter(start, end, limit=limit, reverse=reverse, freshness=freshness), json)


def _print_rows(rows: Iterable[tuple[bytes, bytes]], json: bool) -> None:
    write = sys.stdout.write
    for key, value in rows:
        if json:
            write(json_line({"key": json_bytes(key), "value": json_bytes(value)}) + "\n")
        else:
            write(f"{escaped(key)}\t{escaped(value)}\n")


@app.command(
    "count",
    epilog=examples(
        "pequod count --prefix 's|ann|'",
        "pequod count 'a' 'b'",
    ),
)
def count(
    first: First,
    last: Last = None,
    prefix: Prefix = False,
    after: After = None,
    latest: Latest = False,
    max_age: MaxAge = None,
    wait: Wait = None,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Print the number of keys in a range, computed keys included. With --json: {"count": ...}."""
    start, end = key_range(first, last, prefix)
    freshness = asked(after, latest, max_age, wait)
    with in_session(target) as client:
        key_count = client.count(start, end, freshness=freshness)
    print(json_line({"count": key_count}) if json else key_count)


def key_range(first: str, last: str | None, prefix: bool) -> tuple[bytes, bytes | None]:
    """Return the range that the arguments of a command name."""
    start = argument_bytes(first)
    if not prefix:
        return start, None if last is None else argument_bytes(last)
    if last is not None:
        fail(ExitCode.USAGE, "give LAST or --prefix, not both")
    from pequod.language.ranges import prefix_end

    return start, prefix_end(start)
