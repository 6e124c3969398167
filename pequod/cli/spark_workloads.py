"""spark generate and spark replay: the paper's workloads at any size, by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, connected
from pequod.cli.exits import ExitCode, say
from pequod.cli.spark import DEFAULT_MASTER, Conf, Master, session, spark_connection
from pequod.cli.spark_checks import check_options, first_file
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import escaped, json_line

if TYPE_CHECKING:
    from pequod_spark.replay import Replayed

#: The number of differences that are shown after a replay.
_SHOWN_MAX: Final = 10

app: Final = typer.Typer()
generate: Final = typer.Typer(
    help="Generate a workload as Parquet. The same numbers give the same rows on every machine.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(generate, name="generate")

Path = Annotated[
    str, typer.Argument(metavar="PATH", help="A folder that is not there yet; any place that Spark knows.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="One seed, one workload.")]


@generate.command(
    "twip",
    epilog=examples(
        "pequod spark generate twip /data/twip",
        "pequod spark generate twip /data/large --users 1800000 --ticks 10000000 --graph power-law",
    ),
)
def twip(
    path: Path,
    users: Annotated[int, typer.Option("--users", help="Users.")] = 2_000,
    ticks: Annotated[int, typer.Option("--ticks", help="Operations.")] = 200_000,
    seed: Seed = 1,
    graph: Annotated[
        str,
        typer.Option(
            "--graph",
            metavar="synthetic|power-law|FILE",
            help="Who follows whom; a file has a line user<TAB>poster for each, or is .parquet, and tells the number "
            "of users.",
        ),
    ] = "synthetic",
    initial_posts: Annotated[int, typer.Option("--initial-posts", help="Posts before the first operation.")] = 0,
    tweet_bytes: Annotated[int, typer.Option("--tweet-bytes", help="Size of a post.")] = 140,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Generate Twip, a service like Twitter: who follows whom, and what users do, one operation a tick."""
    with session(master, conf, "generating") as spark:
        from pequod_spark.edges import read_edges, user_count
        from pequod_spark.twip import GraphModel, Twip
        from pequod_spark.workloads import write

        edges = None
        if graph not in list(GraphModel):
            edges = read_edges(spark, graph)
            users, graph = user_count(edges), GraphModel.SYNTHETIC
        write(spark, Twip(users, ticks, seed, GraphModel(graph), initial_posts, tweet_bytes), path, edges)
    say(f"Twip of {users:,} users and {ticks:,} operations is in {path}")


@generate.command(
    "newp",
    epilog=examples(
        "pequod spark generate newp /data/newp",
        "pequod spark generate newp /data/large --articles 100000 --sessions 20000000 --votes 50",
    ),
)
def newp(
    path: Path,
    articles: Annotated[
        int, typer.Option("--articles", help="Articles, with ten comments and twenty votes each.")
    ] = 1_000,
    sessions: Annotated[int, typer.Option("--sessions", help="Sessions: each reads an article.")] = 100_000,
    votes: Annotated[float, typer.Option("--votes", metavar="PERCENT", help="Of the sessions, how many vote.")] = 10.0,
    seed: Seed = 1,
    text_bytes: Annotated[int, typer.Option("--text-bytes", help="Size of an article or a comment.")] = 100,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Generate Newp, a service like Hacker News: articles, votes and comments, and sessions that use them."""
    with session(master, conf, "generating") as spark:
        from pequod_spark.newp import Newp
        from pequod_spark.workloads import write

        write(spark, Newp(articles, sessions, votes, seed, text_bytes), path)
    say(f"Newp of {articles:,} articles and {sessions:,} sessions is in {path}")


@app.command(
    "replay",
    epilog=examples(
        "pequod spark replay /data/twip                                as fast as it goes",
        "pequod spark replay /data/twip --rate 20000                   20,000 operations a second, by the clock",
        "pequod spark replay /data/newp -t host1:7744 -t host2:7744    each server takes its part",
    ),
)
def replay(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where `pequod spark generate` has written.")],
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="HOST:PORT", help=f"An empty server, by default {DEFAULT_TARGET}; repeatable."
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.001, help="Operations a second; without it, as fast as it goes.")
    ] = None,
    window: Annotated[
        int, typer.Option("--window", min=1, help="Requests under way in each task, without a rate.")
    ] = 64,
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, help="Tasks that send; by default as many as Spark has slots.")
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare what the servers hold in the end.")] = True,
    json: Json = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Replay a workload against empty servers, and compare all of their rows at the end.

    Without --rate each task keeps some requests under way, and latencies are those of the requests. With --rate
    requests start by the clock, and a latency counts from the time at which its request is due, so each request pays
    for a server that stalls. Exit code 1 if requests failed or a server holds wrong rows.

    If there are several servers, each takes some of the users or authors, and holds all posts or votes.
    """
    targets = target or [DEFAULT_TARGET]
    check_options(master, conf, *targets)
    first_file(path, master)
    for each in targets:
        from pequod_spark.replay import refuse_filled

        with connected(each) as client:
            refuse_filled(client)
    with session(master, conf, "replaying") as spark:
        from pequod_spark.replay import replay as run

        servers = [spark_connection(each) for each in targets]
        found = run(spark, path, servers, rate=rate, window=window, task_count=tasks, is_checked=check)
        _report(found, json)
        for each, comparison in zip(targets, found.comparisons, strict=False):
            for number, (key, have, want) in enumerate(comparison):
                if number == _SHOWN_MAX:
                    say(f"{each}: ... {comparison.difference_count:,} differences in all")
                    break
                say(f"{each}: {escaped(key)} is {_shown(have)} and must be {_shown(want)}")
    if found.errors or any(comparison.difference_count for comparison in found.comparisons):
        raise typer.Exit(ExitCode.WRONG)


def _report(found: Replayed, json: bool) -> None:
    compared = sum(comparison.key_count for comparison in found.comparisons)
    differing = sum(comparison.difference_count for comparison in found.comparisons)
    if json:
        latencies = {kind: latency._asdict() for kind, latency in found.latencies.items()}
        print(
            json_line(
                {
                    "seconds": found.seconds,
                    "requests": found.request_count,
                    "latencies": latencies,
                    "errors": found.errors,
                    "keys_compared": compared,
                    "keys_different": differing,
                }
            )
        )
        return
    print_table(
        ("request", "count", "p50 ms", "p99 ms", "p99.9 ms", "max ms"),
        (
            (kind, f"{latency.requests:,}", *(f"{ms:.2f}" for ms in latency[1:]))
            for kind, latency in found.latencies.items()
        ),
    )
    print(f"\n{found.request_count:,} requests in {found.seconds:.1f} s: {found.request_count / found.seconds:,.0f}/s")
    for name, count in found.errors.items():
        print(f"{count:,} requests failed with {name}")
    if found.comparisons:
        print(f"{compared:,} keys compared, {differing:,} {'differs' if differing == 1 else 'differ'}")


def _shown(value: bytes | None) -> str:
    return "not there" if value is None else repr(escaped(value[:80]))
