"""bench compare: the paper's evaluation beside other systems."""

from __future__ import annotations

import signal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.bench import Graph, Json, Seed, TweetBytes, progress_bars
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.teaching import examples

if TYPE_CHECKING:
    from pequod_bench.paper.comparison import Comparison
    from pequod_bench.paper.scale import CompareScale
    from pequod_bench.paper.study import StudySettings

app: Final = typer.Typer()


class Delivery(StrEnum):
    """The users to whom the client delivers posts, where no join keeps timelines."""

    FOLLOWERS = "followers"
    ACTIVE = "active"


Quick = Annotated[bool, typer.Option("--quick", help="Small sizes: one to three minutes in all.")]
Reference = Annotated[bool, typer.Option("--reference", help="The sizes that bench/README.md shows: twenty minutes.")]
Users = Annotated[
    int | None, typer.Option("--users", min=2, help="Users of figure 7 (2,000; 500; 5,000).", show_default=False)
]
Ticks = Annotated[
    int | None,
    typer.Option("--ticks", min=1, help="Operations of figure 7 (100,000; 20,000; 200,000).", show_default=False),
]
Repeat = Annotated[
    int | None,
    typer.Option("--repeat", min=1, help="Repetitions: figure 7 (3; 2; 5), others (1; 1; 3).", show_default=False),
]
Systems = Annotated[
    str,
    typer.Option(
        "--systems",
        metavar="NAME,...",
        help="Of pequod, redis, client-pequod, memcached, postgres, postgres-calls, postgres-query; ratios are to "
        "the first.",
    ),
]
Figures = Annotated[
    str, typer.Option("--figures", metavar="NAME,...", help="Of 7, 8, 9, maintenance, celebrity, latency, ycsb.")
]
Delivered = Annotated[
    Delivery,
    typer.Option(
        "--delivery",
        help="Where clients or triggers keep timelines: every follower gets posts, as in the paper, or those who are "
        "known to check.",
    ),
]
Pin = Annotated[
    bool, typer.Option("--pin", help="Keep the client on the first core, servers of one thread on the others.")
]
Out = Annotated[
    Path | None, typer.Option("--out", metavar="DIR", help="Write compare.html, compare.md and compare.json there.")
]
Again = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE", help="Measure nothing: report on a compare.json of an earlier run."),
]
Readme = Annotated[
    Path | None,
    typer.Option(
        "--readme",
        metavar="FILE",
        help="Put the figures into a Markdown file, between the two lines <!-- compare: figures --> and "
        "<!-- compare: end -->.",
    ),
]


@app.command(
    "compare",
    short_help="The paper's figures, beside other systems.",
    epilog=examples(
        "pequod bench compare --quick --out report                   (two or three minutes)",
        "pequod bench compare --reference --out report               (twenty minutes, on a quiet machine)",
        "pequod bench compare --systems pequod,redis --figures 7",
        "pequod bench compare --figures latency,ycsb",
        "pequod bench compare --from report/compare.json --readme bench/README.md",
        "pequod bench compare --reference --users 20000 --ticks 1000000 --figures 7 --out report   (an hour)",
    ),
)
def compare(
    quick: Quick = False,
    reference: Reference = False,
    users: Users = None,
    ticks: Ticks = None,
    repeat: Repeat = None,
    systems: Systems = "pequod,redis,client-pequod,memcached,postgres,postgres-calls,postgres-query",
    figures: Figures = "7,8,9,maintenance,celebrity,latency,ycsb",
    graph: Graph = "synthetic",
    seed: Seed = 1,
    tweet_bytes: TweetBytes = 140,
    delivery: Delivered = Delivery.FOLLOWERS,
    pin: Pin = False,
    out: Out = None,
    again: Again = None,
    readme: Readme = None,
    json: Json = False,
) -> None:
    """Repeat the Pequod paper's evaluation beside real peers: Redis, memcached and PostgreSQL.

    Figure 7, Twip on all systems; 8, ways to materialise; 9, Newp with separate and interleaved joins. Then push, pull
    and snapshots; celebrities kept apart; latencies at fixed rates and how late posts show; and YCSB. Each server that
    is installed is started for its run, in its own directory; all get the same operations, and their final contents
    must be equal. If one fails, it is reported and the others run. Sizes in brackets: plain, --quick, --reference.
    """
    from dataclasses import replace

    from pequod_bench.paper.scale import FEW_MINUTES, QUICK, REFERENCE
    from pequod_bench.paper.study import StudySettings

    if quick and reference:
        fail(ExitCode.USAGE, "--quick and --reference are two sizes: take one")
    scale: CompareScale = QUICK if quick else REFERENCE if reference else FEW_MINUTES
    scale = replace(
        scale,
        users=users or scale.users,
        ticks=ticks or scale.ticks,
        repetitions=repeat or scale.repetitions,
        curve_repetitions=repeat or scale.curve_repetitions,
    )
    names = [name.strip() for name in systems.split(",") if name.strip()]
    sections = frozenset(part.strip() for part in figures.split(","))
    settings = StudySettings(scale, names, sections, graph, tweet_bytes, delivery.value, seed, pin)
    skipped = _skipped(settings, figures)
    keeper = _Keeper(out, readme)
    if again is not None:
        _print(keeper.again(again), json)
        return
    for name, reason in skipped.items():
        say(f"{name} is left out: {reason}")
    found = _measure(settings, keeper, json)
    _print(found, json)
    for failure in found.failures:
        say(f"{failure.section}: {failure.title} failed: {failure.reason}")
    if differences := found.differences():
        fail(ExitCode.WRONG, f"the answers are wrong: {differences[0]}")
    if found.failures:
        fail(ExitCode.WRONG, "not everything could be measured; the report says what")


class _Keeper:
    """Writes what is found, after each section, where the options say."""

    def __init__(self, out: Path | None, readme: Path | None) -> None:
        from pequod_bench.paper.report import refuse_unmarked

        from pequod.errors import PequodError

        self.out = out
        self._readme = readme
        try:
            if readme is not None:
                refuse_unmarked(readme)
            if out is not None:
                out.mkdir(parents=True, exist_ok=True)
        except (PequodError, OSError, UnicodeDecodeError) as error:
            fail(ExitCode.USAGE, str(error))

    def keep(self, found: Comparison) -> None:
        """Write it."""
        from pequod_bench.paper.report import rewrite, write_report

        if self.out is not None:
            write_report(found, self.out)
        if self._readme is not None:
            rewrite(self._readme, found)

    def again(self, path: Path) -> Comparison:
        """Read what an earlier run found, and write it."""
        from pequod_bench.paper.comparison import from_json

        from pequod.errors import PequodError

        try:
            earlier = from_json(path.read_text("utf-8"))
        except (PequodError, OSError, UnicodeDecodeError) as error:
            fail(ExitCode.USAGE, str(error))
        self.keep(earlier)
        return earlier


def _skipped(settings: StudySettings, figures: str) -> dict[str, str]:
    """Return which systems are left out, and why; refuse names that are none."""
    from pequod_bench.paper.study import SECTIONS, chosen

    from pequod.errors import PequodError

    if not settings.sections <= set(SECTIONS):
        fail(ExitCode.USAGE, f"--figures takes {', '.join(SECTIONS)}, with commas between them, not {figures!r}")
    try:
        _, skipped = chosen(settings.systems)
    except PequodError as error:
        fail(ExitCode.USAGE, str(error))
    return skipped


def _measure(settings: StudySettings, keeper: _Keeper, json: bool) -> Comparison:
    from pequod_bench.paper.study import run

    # SIGTERM is treated as Ctrl-C: the running server is stopped, and its directory removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = run(settings, progress_bars(json), keeper.keep)
    finally:
        signal.signal(signal.SIGTERM, before)
    if keeper.out is not None:
        say(f"the report is in {keeper.out / 'compare.html'}")
    return found


def _print(found: Comparison, json: bool) -> None:
    from pequod_bench.paper.report import to_markdown

    print(found.to_json() if json else to_markdown(found))
