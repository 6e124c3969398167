"""verify: compare a server's computed rows with what Spark computes."""

from __future__ import annotations

import sys
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target, connected
from pequod.cli.data import Last, Prefix, key_range
from pequod.cli.exits import ExitCode, say
from pequod.cli.spark import DEFAULT_MASTER, Conf, Master, session, spark_connection
from pequod.cli.spark_checks import check_options
from pequod.cli.teaching import examples
from pequod.cli.text import escaped, json_bytes, json_line

if TYPE_CHECKING:
    from pequod_spark.comparing import Difference, RowComparison
    from pequod_spark.verify import Verification

#: Differences that are repaired together, while the next are fetched.
_REPAIRED_AT_A_TIME: Final = 10_000

app: Final = typer.Typer()


@app.command(
    "verify",
    epilog=examples(
        "pequod verify",
        "pequod verify --join t",
        "pequod verify --prefix 't|ann|' --repair",
        "pequod verify --master 'local[4]' --conf spark.driver.memory=8g --json > differences.jsonl",
    ),
)
def verify(
    first: Annotated[
        str, typer.Argument(metavar="[FIRST]", help="The first key to verify; without it, all computed keys.")
    ] = "",
    last: Last = None,
    prefix: Prefix = False,
    join: Annotated[
        str | None, typer.Option("--join", metavar="NAME", help="Verify the keys of this join alone.")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Have what differs computed anew; needs the right `admin`.")
    ] = False,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
    master: Master = DEFAULT_MASTER,
    conf: Conf = None,
) -> None:
    """Compare the computed keys of a server with what Spark computes from its base keys.

    Both are of one revision, so others may write meanwhile. A line is - for a row that the server has, or + for a row
    that it should have, then the key and the value; with --json it is {"key": ..., "have": ..., "want": ...}, where
    null means that the key is absent. Exit code 1 if anything differs, repaired or not.

    Pull joins cannot be followed: their sources must not change while they are verified. Snapshot joins are left out.
    Needs the extra spark, and Java 17 or newer.
    """
    start, end = key_range(first, last, prefix)
    check_options(master, conf, target)
    with connected(target) as client:
        from pequod_spark.verify import check

        for output in check(client, join=join, first=start, last=end):
            if repair:
                # The server checks the right to the first key even if the range is empty, and then drops nothing.
                client.invalidate_range(output.first, output.first)
        told = client.statistics()
        rows = sum(one.keys for one in told.tables.values()) + sum(one.rows for one in told.joins.values())
    with session(master, conf, "verifying", row_count=rows) as spark:
        from pequod_spark.verify import verify as compare

        connection = spark_connection(target)
        verification = compare(spark, connection, join=join, first=start, last=end)
        for name, reason in verification.left_out.items():
            if join is None:
                say(f"the join {name} is left out: {reason}")
        repaired_count = _tell(verification.found, json, target if repair else None)
    _sum_up(verification, repaired_count if repair else None)
    if verification.found.difference_count:
        raise typer.Exit(ExitCode.WRONG)


def _tell(found: RowComparison, json: bool, repair_at: str | None) -> int:
    """Print the differences, and repair them if asked; return the number of contexts that will be computed again."""
    from pequod_spark.verify import repair

    repaired_count = 0
    remaining = iter(found)
    while piece := list(islice(remaining, _REPAIRED_AT_A_TIME)):
        for difference in piece:
            sys.stdout.write(_json(difference) if json else _text(difference))
        if repair_at is not None:
            repaired_count += repair(spark_connection(repair_at), piece)
    return repaired_count


def _text(difference: Difference) -> str:
    key, have, want = difference
    lines = [("-", have), ("+", want)]
    return "".join(f"{sign} {escaped(key)}\t{escaped(value)}\n" for sign, value in lines if value is not None)


def _json(difference: Difference) -> str:
    key, have, want = difference
    shown = {name: None if value is None else json_bytes(value) for name, value in (("have", have), ("want", want))}
    return json_line({"key": json_bytes(key), **shown}) + "\n"


def _sum_up(verification: Verification, repaired_count: int | None) -> None:
    found = verification.found
    at = f"of {found.key_count:,} computed keys at revision {verification.revision}"
    if not found.difference_count:
        say(f"none {at} differs")
        return
    say(f"{found.difference_count:,} {at} {'differs' if found.difference_count == 1 else 'differ'}")
    if repaired_count is None:
        say("`--repair` has them computed anew")
    else:
        say(f"they are computed anew when they are read ({repaired_count:,} contexts); verify again to see it")
