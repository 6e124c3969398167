"""The commands put together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from pequod.cli.connection import Security, present_security
from pequod.cli.exits import ExitCode
from pequod.cli.group import CONTEXT, CommandGroup
from pequod.cli.parts import Commands, CommandTable, Maker, commands_of, in_group, in_module

_HELP: Final = """An ordered key-value cache that keeps computed data fresh by itself.

\b
Start a server in one shell:
    pequod serve --data ./data
Use it in another:
    pequod join add 't|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>'
    pequod put 's|ann|bob' 1
    pequod put 'p|bob|0000000100' 'hello'
    pequod scan --prefix 't|ann|'

\b
The same at a prompt, a live view, and whole files of rows:
    pequod shell
    pequod top
    pequod load posts.csv
    pequod dump --prefix 't|ann|' -o timeline.parquet

Keys and values are bytes; keys sort as bytes. Quote keys, since | means something to a shell.
Results go to standard output, messages to standard error.

\b
Exit codes:
    0  done                    3  refused by the server, or the database
    1  the key is not there    4  no server, or no database, answers
    2  usage                   5  the results cannot be written, as on a full disk
    (docs/cli.md has those of `pequod serve`)
"""


def _addjoin() -> Commands:
    from pequod.cli.joins import add

    alias = typer.Typer()
    alias.command("addjoin", help="Alias of `join add`, the name that the paper uses.")(add)
    return commands_of(alias)


#: Each command and group by its name, in the order of the help.
_COMMANDS: Final[dict[str, Maker]] = {
    "addjoin": _addjoin,
    "serve": in_module("serve"),
    **dict.fromkeys(("put", "get", "rm", "scan", "count"), in_module("data")),
    "transaction": in_module("transaction"),
    **dict.fromkeys(("add", "cas"), in_module("decided")),
    **dict.fromkeys(("expire", "persist", "ttl"), in_module("expiry")),
    **dict.fromkeys(("load", "dump"), in_module("transfer")),
    **dict.fromkeys(("explain", "stats"), in_module("inspect")),
    "ping": in_module("ping"),
    "top": in_module("top"),
    "shell": in_module("shell"),
    "watch": in_module("watch"),
    "verify": in_module("verify"),
    "join": in_group("join", "joins"),
    "token": in_group("token", "token"),
    "config": in_group("config", "config"),
    "backing": in_group("backing", "backing"),
    "snapshot": in_group("snapshot", "snapshot"),
    "data": in_group("data", "folders"),
    "cluster": in_group(
        *("cluster", "cluster", "cluster_status", "cluster_advise", "cluster_shares", "cluster_map", "cluster_move"),
        *("cluster_clean", "cluster_demo"),
    ),
    "views": in_group("views", "views"),
    "versioned": in_group("versioned", "versioned"),
    "spark": in_group("spark", "spark", "spark_load", "spark_workloads"),
    "backfill": in_group("backfill", "backfill"),
    "lake": in_group("lake", "lake"),
    "bench": in_group("bench", "bench"),
}


class _AllCommands(CommandGroup):
    """The root group, whose commands are made when they are looked up."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        commands: Any = CommandTable(_COMMANDS)
        self.commands = commands


app: Final = typer.Typer(
    cls=_AllCommands,
    help=_HELP,
    no_args_is_help=True,
    # rich's help takes 190 ms more at each start, plain help none.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set a variable during a command: it takes precedence over defaults, and the command's own options over it."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _show_version(wanted: bool) -> None:
    if wanted:
        from pequod_installed.names import version

        from pequod.native import FLAVOUR, why_pure
        from pequod.native.http2 import why_absent

        reason = why_pure()
        print(f"pequod {version()} ({FLAVOUR}{f': {reason}' if reason else ''})")
        if reason is None:
            lacking = why_absent()
            print(f"transport: {'native' if lacking is None else f'grpcio, {lacking}'}")
        raise typer.Exit(ExitCode.DONE)


def _file(flag: str, variable: str, text: str) -> Any:
    return typer.Option(flag, envvar=variable, metavar="FILE", help=text)


@app.callback(help=_HELP)
def _root(
    context: typer.Context,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="HOST:PORT", help="The server to talk to; also behind the command."),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", envvar="PEQUOD_TLS", help="Talk TLS, with the public authorities.")
    ] = False,
    ca: Annotated[
        str | None, _file("--ca", "PEQUOD_CA", "Talk TLS, with this authority of the server's certificate, PEM.")
    ] = None,
    certificate: Annotated[
        str | None, _file("--certificate", "PEQUOD_CERTIFICATE", "The client's own certificate, PEM.")
    ] = None,
    key: Annotated[str | None, _file("--key", "PEQUOD_KEY", "The key of the client's certificate, PEM.")] = None,
    token_file: Annotated[
        str | None,
        _file("--token-file", "PEQUOD_TOKEN_FILE", "The token to show; without it, the variable PEQUOD_TOKEN."),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", envvar="PEQUOD_INSECURE_TOKEN", help="Send the token in plain text to other machines too."
        ),
    ] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options before a command."""
    if target is not None:
        context.with_resource(_variable("PEQUOD_TARGET", target))
    present_security.set(Security(tls, ca, certificate, key, token_file, insecure))
