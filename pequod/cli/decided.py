"""add and cas: writes that go by the present value."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from pequod.cli.condition import told
from pequod.cli.connection import DEFAULT_TARGET, Json, Target
from pequod.cli.data import Key
from pequod.cli.freshness import in_session, shown
from pequod.cli.numbers import NumbersCommand
from pequod.cli.teaching import examples
from pequod.cli.text import argument_bytes, json_bytes, json_line

app: Final = typer.Typer()


@app.command(
    "add",
    cls=NumbersCommand,
    epilog=examples(
        "pequod add 'visits|home' 1",
        "pequod add 'balance|ann' 19.90                (decimals are exact)",
        "pequod add 'stock|42' -1",
    ),
)
def add(
    key: Key,
    delta: Annotated[str, typer.Argument(metavar="DELTA", help="The number, in plain digits such as 12 or 0.5.")],
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Add a number to the value of one key, and print the sum, which is the new value.

    A key that is not there counts as 0. Many may add at once, and nothing is lost. Exit code 3 if the value is no
    number, or the sum has too many digits: then nothing has changed. With --json: {"token": ..., "value": ...}.

    If the server does not answer (exit code 4), the message says whether the number may have been added.
    """
    with in_session(target) as client:
        total = client.add(argument_bytes(key), argument_bytes(delta))
        written = shown(client.last_token)
    print(json_line({"token": written or None, "value": json_bytes(total)}) if json else total.decode())


@app.command(
    "cas",
    cls=NumbersCommand,
    epilog=examples(
        "pequod cas 'light|1' red green                (only if it is red)",
        "pequod cas 'lock|a' me you || echo 'another worker has it'",
        "pequod cas 'light|1' '' green                 (only if it is there, and empty)",
    ),
)
def cas(
    key: Key,
    expected: Annotated[str, typer.Argument(metavar="EXPECTED", help="The value that the key has to have.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value that it is to have.")],
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Compare and swap: write one key if it has the value EXPECTED.

    Otherwise nothing is written, the present value is printed as `get` prints it, and the exit code is 1: compare with
    that value, and try again. A key that is not there has no value; `put --if-absent` writes such a key. The same as
    `put --if-value EXPECTED KEY VALUE`. With --json: {"token": ..., "met": ..., "value": ...}.
    """
    from pequod.language.conditions import if_value

    wanted = argument_bytes(key)
    with in_session(target) as client:
        outcome = client.put(wanted, argument_bytes(value), condition=if_value(argument_bytes(expected)))
        written = shown(client.last_token)
    told(wanted, outcome, {"token": written or None} if json else None)
