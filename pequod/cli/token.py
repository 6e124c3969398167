"""token new: a random token for a client, and the lines of the access file for it."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from pequod.cli.exits import ExitCode, fail
from pequod.cli.teaching import examples

#: TOML allows these in a key without quotes.
_BARE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

app: Final = typer.Typer(
    help="Make tokens, by which a server with an access file knows its clients.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _group() -> None:
    """Have typer keep `new` as a command under `token`."""


@app.command(
    "new",
    epilog=examples(
        "pequod token new frontend --role web",
        "pequod token new frontend --role web > frontend.token 2>> access.toml",
    ),
)
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is called in the access file.")],
    role: Annotated[str, typer.Option("--role", metavar="ROLE", help="The role in the access file that it has.")],
) -> None:
    """Print a new token, and on standard error its lines for the access file.

    The token is shown once; the server needs and keeps only its hash.
    """
    from hashlib import sha256
    from secrets import token_urlsafe

    for word, what in ((name, "NAME"), (role, "--role")):
        if not word or not _BARE.issuperset(word):
            fail(ExitCode.USAGE, f"{what} is {word!r}; it must consist of letters, digits, - and _")
    token = f"pqd_{token_urlsafe(32)}"
    print(token)
    sys.stdout.flush()
    digest = sha256(token.encode()).hexdigest()
    print(f'[tokens.{name}]\nrole = "{role}"\nsha256 = "{digest}"', file=sys.stderr)
