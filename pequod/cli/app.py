"""The commands put together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from pequod.cli import (
    backfill,
    backing,
    bench,
    bench_cluster,
    bench_compare,
    bench_engine,
    bench_lake,
    bench_server,
    bench_twip,
    bench_views,
    cluster,
    cluster_demo,
    cluster_move,
    cluster_status,
    config,
    data,
    inspect,
    joins,
    lake,
    serve,
    shell,
    snapshot,
    spark_load,
    spark_workloads,
    token,
    top,
    transfer,
    verify,
    views,
    watch,
)
from pequod.cli.connection import Security, present_security
from pequod.cli.exits import ExitCode
from pequod.cli.group import CONTEXT, CommandGroup

_HELP: Final = """An ordered key-value cache that keeps computed data fresh by itself.

\b
Start a server in one shell:
    pequod serve
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
    2  usage                   (`pequod serve` has the same: docs/cli.md)
"""


app: Final = typer.Typer(
    cls=CommandGroup,
    help=_HELP,
    no_args_is_help=True,
    # rich's help takes 190 ms more at each start, plain help none.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
app.add_typer(serve.app)
app.add_typer(data.app)
app.add_typer(transfer.app)
app.add_typer(inspect.app)
app.add_typer(top.app)
app.add_typer(shell.app)
app.add_typer(watch.app)
app.add_typer(verify.app)
app.add_typer(joins.app, name="join")
app.command("addjoin", help="Alias of `join add`, the name that the paper uses.")(joins.add)
app.add_typer(token.app, name="token")
app.add_typer(config.app, name="config")
app.add_typer(backing.app, name="backing")
app.add_typer(snapshot.app, name="snapshot")
for part in (cluster_status, cluster_move, cluster_demo):
    cluster.app.add_typer(part.app)
app.add_typer(cluster.app, name="cluster")
app.add_typer(views.app, name="views")
spark = typer.Typer(
    help="Large work by Spark's tasks: pip install 'pequod[spark]' and Java 17.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
spark.add_typer(spark_load.app)
spark.add_typer(spark_workloads.app)
app.add_typer(spark, name="spark")
app.add_typer(backfill.app, name="backfill")
app.add_typer(lake.app, name="lake")
for benchmarks in (bench_twip, bench_engine, bench_server, bench_cluster, bench_compare, bench_lake, bench_views):
    bench.app.add_typer(benchmarks.app)
app.add_typer(bench.app, name="bench")


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
        from importlib.metadata import version

        from pequod.native import FLAVOUR

        print(f"pequod {version('pequod')} ({FLAVOUR})")
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
