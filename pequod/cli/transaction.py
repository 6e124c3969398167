"""pequod transaction: compares and two lists of commands, as JSON from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Target
from pequod.cli.exits import ExitCode, fail
from pequod.cli.freshness import in_session
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

app: Final = typer.Typer()


@app.command(
    "transaction",
    epilog=examples(
        "pequod transaction -f transfer.json",
        """echo '{"compares": [{"key": "lock|a", "is": "absent"}], "then": [{"put": "lock|a", "value": "me"}]}' \\"""
        "\n    | pequod transaction -f -",
    ),
)
def transaction(
    file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="The transaction; - for standard input.")],
    target: Target = DEFAULT_TARGET,
) -> None:
    """Compare base keys, then run one of two lists of commands, all or none.

    FILE has one JSON object: "compares", "then" and "otherwise" are lists, each of which may be left out.

    A compare is {"key": KEY, "is": "absent"}, {"key": KEY, "is": "present"}, or has one of "=", "!=", "<", ">" with
    a value in the place of "is". A command is {"get": KEY}, {"put": KEY, "value": VALUE}, with "ttl_s" or
    "keep_ttl" if wanted, {"remove": KEY}, {"add": KEY, "delta": NUMBER}, {"scan": PREFIX} with "limit" and
    "reverse" if wanted, or {"count": PREFIX}; in the place of a prefix, [FIRST, LAST] is a range. Keys and values
    are text, or {"base64": ...}; numbers are integers, or decimals as text.

    Prints {"held": ..., "outcomes": [...]}: of a get its value or null, of a scan its rows, of a count a number, of a
    remove whether the key was there, of an add the sum, of a put null. Exit code 1 if a compare does not hold.
    """
    try:
        text = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        fail(ExitCode.USAGE, f"{file} cannot be read: {error.strerror}")
    from pequod.interface.transaction_forms import FormError, form_of, parts_of

    try:
        compares, then, otherwise = parts_of(text)
    except FormError as error:
        fail(ExitCode.USAGE, f"{'standard input' if file == '-' else file}: {error}")
    with in_session(target) as client:
        done = client.transaction(compares, then, otherwise)
    print(json_line(form_of(done)))
    if not done.held:
        ran = "the commands of `otherwise` have run" if otherwise else "nothing was done"
        fail(ExitCode.ABSENT, f"a compare does not hold, so {ran}")
