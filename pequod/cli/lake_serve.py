"""lake serve and demo, which run for a while; and how every command opens its lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final

import typer
from pequod_bench.settings import LakeDemoSettings
from pequod_installed.names import how_to_install

from pequod.cli.bench_options import measuring
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.report.printed import Printed
    from pequod_bench.report.progress import ProgressBars
    from pequod_lake import Lake

app: Final = typer.Typer()

Location = Annotated[
    str,
    typer.Argument(metavar="LAKE", help="The lake: its folder, or its address in an object store, s3://BUCKET/PATH."),
]


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
def opened_lake(location: str, cache_bytes: int | None = None) -> Iterator[Lake]:
    """Open a lake for a command.

    Args:
        cache_bytes: Rows that short queries have read stay in memory up to this number; None for the default.
    """
    with lake_errors():
        from pequod_lake import CacheLimits, Lake

        with Lake(location, cache=None if cache_bytes is None else CacheLimits(bytes_max=cache_bytes)) as lake:
            yield lake


@app.command(
    "serve", epilog=examples("pequod lake serve lake", "pequod lake serve lake --listen 127.0.0.1:7745 --workers 1")
)
def serve(
    location: Location,
    listen: Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")] = "127.0.0.1:7745",
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen in plain text, for everybody, where other machines can reach it.")
    ] = False,
    workers: Annotated[int, typer.Option("--workers", min=0, metavar="NUMBER", help="Sort and merge, too.")] = 0,
    cache: Annotated[
        int, typer.Option("--cache", min=0, metavar="MIB", help="Rows that short queries have read stay in memory.")
    ] = 256,
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
    with opened_lake(location, cache << 20) as lake:
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


@measuring(
    app,
    "demo",
    LakeDemoSettings,
    shown=("pequod lake demo", "pequod lake demo --seconds 60 --rows-per-s 50000 --out figures"),
)
def demo(settings: LakeDemoSettings, _bars: ProgressBars) -> Printed:
    """Take in rows while queries of four freshness levels run, and draw latency and staleness over time.

    Each upload moves a balance between two rows, and each query checks that it sees both halves; exit code 1 if one
    does not.
    """
    with lake_errors():
        from pequod_bench.lakes.demo import draw, run

        report = run(settings)
        say(f"drawn: {', '.join(map(str, draw(report, settings.out)))}")
        return report
