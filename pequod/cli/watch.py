"""watch: print the changes of a range as they happen."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.answers.changes import Change
from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.data import First, Last, Prefix, key_range
from pequod.cli.freshness import After, Latest, MaxAge, Wait, asked, in_session
from pequod.cli.teaching import examples
from pequod.cli.text import escaped, json_bytes, json_line

if TYPE_CHECKING:
    from pequod.client import WatchEvent

app: Final = typer.Typer()


@app.command(
    "watch",
    epilog=examples(
        "pequod watch --prefix 't|ann|'",
        "pequod watch --prefix 'karma|' --rows",
        "pequod watch '' --json | jq .           (everything that is written or computed)",
    ),
)
def watch(
    first: First,
    last: Last = None,
    prefix: Prefix = False,
    rows: Annotated[bool, typer.Option("--rows", help="Print the rows of the range first.")] = False,
    after: After = None,
    latest: Latest = False,
    max_age: MaxAge = None,
    wait: Wait = None,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Print the changes of a range as they happen, computed keys included, until Ctrl-C.

    A line is + for a new key, ~ for a new value or - for a removed key, then the key, and the new value as `scan`
    prints it; rows of the start have a space. With --json a line is {"revision": ..., "key": ..., "old": ..., "new":
    ...}, where null means that the key is absent. If the connection breaks, that is printed on standard error, and the
    watch continues without a loss; exit code 3 if it cannot continue, and 4 if the server stays away.
    """
    start, end = key_range(first, last, prefix)
    freshness = asked(after, latest, max_age, wait)
    with _told_of_breaks(), in_session(target) as client:
        for event in client.watch(start, end, rows=rows, freshness=freshness):
            lines = _json_lines(event) if json else _lines(event)
            # In one piece, so that Ctrl-C between a line and its end does not leave half of it for later.
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()


@contextmanager
def _told_of_breaks() -> Iterator[None]:
    """Print on standard error that a connection broke, and that it is back."""
    log, handler = logging.getLogger("pequod.client"), logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("pequod: %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


def _lines(event: WatchEvent) -> list[str]:
    found = [] if event.rows is None else list(zip(event.rows.keys, event.rows.values, strict=True))
    lines = [f"  {escaped(key)}\t{escaped(value)}" for key, value in found]
    for change in event.changes:
        key, old, new = change
        if new is None:
            lines.append(f"- {escaped(key)}" + (f"\t{change.reason}" if change.reason else ""))
        else:
            lines.append(f"{'+' if old is None else '~'} {escaped(key)}\t{escaped(new)}")
    return lines


def _json_lines(event: WatchEvent) -> list[str]:
    found = [] if event.rows is None else list(zip(event.rows.keys, event.rows.values, strict=True))
    changes = [*(Change(key, None, value) for key, value in found), *event.changes]
    return [
        json_line(
            {
                "revision": event.revision,
                "key": json_bytes(one.key),
                "old": None if one.old is None else json_bytes(one.old),
                "new": None if one.new is None else json_bytes(one.new),
                **({"reason": one.reason} if one.reason else {}),
            }
        )
        for one in changes
    ]
