"""lake serve and demo, which run for a while; and how every command opens its lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pequod_installed.names import how_to_install

from pequod.cli.connection import Json
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_lake import Lake

app: Final = typer.Typer()

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the lake.")]


@contextmanager
def lake_errors() -> Iterator[None]:
    """Say what to install if a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("pequod"):
            raise
        fail(ExitCode.REFUSED, f"a lake needs {error.name}: {how_to_install('lake')}")


@contextmanager
def opened_lake(folder: Path) -> Iterator[Lake]:
    """Open a lake for a command."""
    with lake_errors():
        from pequod_lake import Lake

        with Lake(folder) as lake:
            yield lake


@app.command(
    "serve", epilog=examples("pequod lake serve lake", "pequod lake serve lake --listen 127.0.0.1:7745 --workers 1")
)
def serve(
    folder: Folder,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:7745",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen in plain text, for everybody, where other machines can reach it.")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", min=0, metavar="NUMBER", help="Sort and merge, too.")] = 0,
) -> None:
    """Take in rows and answer queries by Arrow Flight, which is gRPC with columns, until Ctrl-C.

    It asks nobody who they are, and has no TLS: listen on a loopback address, or behind a proxy that does. An address
    that other machines can reach is refused without --insecure.
    """
    from threading import Event, Thread

    from pequod.addresses import is_local

    if not insecure and not is_local(listen):
        fail(
            ExitCode.USAGE,
            f"listen: {listen} can be reached from other machines, and everybody there could read and write the lake, "
            "in plain text; listen on 127.0.0.1 behind a proxy that has TLS and asks who calls, or give --insecure if "
            "nobody else can reach it",
        )
    with opened_lake(folder) as lake:
        from pequod_lake.flight import LakeFlightServer

        server = LakeFlightServer(lake, f"grpc://{listen}")
        stop, crew = Event(), [lake.worker() for _ in range(workers)]
        threads = [Thread(target=worker.run, args=(stop,), daemon=True) for worker in crew]
        for thread in threads:
            thread.start()
        say(f"listening on {listen.rpartition(':')[0]}:{server.port}")
        try:
            server.serve()
        except KeyboardInterrupt:
            say("ending")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            server.close()
            for worker in crew:
                worker.close()


@app.command(
    "demo", epilog=examples("pequod lake demo", "pequod lake demo --seconds 60 --rows-per-s 50000 --out figures")
)
def demo(
    seconds: Annotated[float, typer.Option("--seconds", min=1.0, help="How long rows come.")] = 20.0,
    rows_per_s: Annotated[int, typer.Option("--rows-per-s", min=1, help="At which rate.")] = 20_000,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the two figures go.")] = Path("lake-figures"),
    json: Json = False,
) -> None:
    """Take in rows while queries of four freshness levels run, and draw latency and staleness over time.

    Each upload moves a balance between two rows, and each query checks that it sees both halves; exit code 1 if one
    does not.
    """
    from tempfile import TemporaryDirectory

    with lake_errors(), TemporaryDirectory() as place:
        from pequod_bench.lake_demo import draw, run_demo
        from rich.console import Console

        report = run_demo(Path(place) / "lake", seconds, rows_per_s)
        paths = draw(report, out)
    if json:
        print(report.to_json())
    else:
        report.print_table(Console(highlight=False))
    say(f"drawn: {', '.join(map(str, paths))}")
    if report.wrong:
        fail(ExitCode.WRONG, f"the answers are wrong: {report.wrong[0]}")
