r"""A server's computed keys compared with what Spark computes from its base keys, at one revision, while others write.

joins of the server --> ranges: outputs, and what they are computed from
                            |                         |
                   read in tasks (later)       followed from revision R on
                            \                         /
                      the rows as of R: later changes are undone
                            |                         |
                   have: the outputs          want: the joins compiled over the base rows
                            \                         /
                                   differences
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

import pyarrow as pa
from pequod_grammar import parse
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.client import Client
from pequod.errors import PequodError, WatchCompactedError
from pequod.language.containing import keys_of, meet
from pequod.language.patterns import may_overlap
from pequod.language.ranges import Range, united
from pequod.language.spec import JoinSpec, Snapshot
from pequod_spark.comparing import Difference, RowComparison, compare, kept
from pequod_spark.connection import Connection, ServerChangedError
from pequod_spark.following import Follower
from pequod_spark.keys import take_apart
from pequod_spark.needs import ranges_read
from pequod_spark.plan import compile_scan, read_from
from pequod_spark.ranges import ROW_SCHEMA, clip
from pequod_spark.reading import read_ranges
from pequod_spark.session import refuse_connect

#: How often a verification is tried while changes come too fast to be followed.
ATTEMPTS: Final = 3
#: Differences near each other are invalidated as one range, to limit the number of calls.
_REPAIRS_MAX: Final = 256


class VerifyError(PequodError):
    """A verification that is not possible, now or ever."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification."""

    #: The revision that was compared.
    revision: int
    found: RowComparison
    #: Joins that were left out, by name, with the reason.
    left_out: dict[str, str]


class _UnsettledError(PequodError):
    """The rows at one revision could not be found; another attempt may succeed."""


def verify(
    spark: SparkSession,
    connection: Connection,
    *,
    join: str | None = None,
    first: bytes = b"",
    last: bytes | None = None,
) -> Verification:
    """Compare computed keys with what the joins make of the base keys, all as of one revision.

    Others may write meanwhile. If a join cannot be watched (it is a pull join, or a pull join shares its output range),
    there must be a moment without changes to its sources.

    Args:
        join: Only the keys of this join; None: of all joins.
        first: The first key.
        last: The end of the range; None for no end.

    Raises:
        ClassicSessionError: The session is a client of Spark Connect.
        VerifyError: The join does not exist or cannot be verified; or no attempt of `ATTEMPTS` succeeded.
        ServerChangedError: The server was restarted meanwhile, and its rows are gone.
        PequodError: As the clients.

    Cost:
        All rows of the ranges and of their sources are read once and kept on Spark's disks; first the server computes,
        in one pass, the ranges that are not materialised.
    """
    refuse_connect(spark, "a verification")
    server_id = connection.server_id()
    for _ in range(ATTEMPTS):
        try:
            return _verify(spark, connection, server_id, join, first, last)
        except WatchCompactedError as error:
            reason = f"the changes could not be followed: {error}; a smaller range or a larger watch_changes_max helps"
        except _UnsettledError as error:
            reason = str(error)
    raise VerifyError(f"not verified after {ATTEMPTS} attempts: {reason}")


def check(
    client: Client, *, join: str | None = None, first: bytes = b"", last: bytes | None = None
) -> tuple[Range, ...]:
    """Check that `verify` can begin: the join can be verified, and the caller may read all that it needs.

    Returns:
        The ranges of computed keys that it would compare.

    Raises:
        VerifyError: The join does not exist or cannot be verified.
        PequodError: As the clients.

    Cost:
        One call for each range that is read; Spark is not used.
    """
    joins = {each.name: parse(each.text)[0] for each in client.joins()}
    outputs = _outputs(_chosen(joins, _left_out(joins), join), first, last)
    for one in _ranges(joins, outputs):
        client.splits(1, *one)
    return outputs


def repair(connection: Connection, found: Iterable[Difference]) -> int:
    """Have the server drop the contexts that differ, so that the next reads compute them; return their number.

    Others may write meanwhile: a context that is right by now is only computed once more.
    """
    keys = sorted(difference.key for difference in found)
    size = max(1, -(-len(keys) // _REPAIRS_MAX))
    with connection.client() as client:
        return sum(
            client.invalidate_range(keys[start], keys[min(start + size, len(keys)) - 1] + b"\0")
            for start in range(0, len(keys), size)
        )


def _verify(
    spark: SparkSession, connection: Connection, server_id: int, join: str | None, first: bytes, last: bytes | None
) -> Verification:
    with connection.client() as client:
        told = client.joins()
        if client.server_id != server_id:
            raise ServerChangedError(connection.target, "the verification")
        joins = {each.name: parse(each.text)[0] for each in told}
        left_out = _left_out(joins)
        chosen = _chosen(joins, left_out, join)
        outputs = _outputs(chosen, first, last)
        specs = list(joins.values())
        ranges = _ranges(joins, outputs)
        with Follower(connection, ranges) as follower:
            client.joins()
            begin = client.revision if follower.unwatchable else follower.revision
            read = kept(read_ranges(spark, connection, ranges))
            is_told_still = client.joins() == told
            if client.server_id != server_id:
                raise ServerChangedError(connection.target, "the verification")
            if not is_told_still:
                raise _UnsettledError("joins came or went")
            changed = follower.before_changes(client.revision)
            if follower.unwatchable and (changed or (begin != client.revision and _hides_sources(follower, specs))):
                why = "; ".join(dict.fromkeys(follower.unwatchable.values()))
                raise _UnsettledError(f"{why}, so nothing that it reads may change meanwhile; try when writers pause")
    rows = _undone(read, changed) if changed else read
    is_due = _matches(chosen) & ~_matches(joins[name] for name in left_out)
    nothing = spark.createDataFrame([], ROW_SCHEMA)
    have = reduce(DataFrame.union, [clip(rows, *one) for one in outputs], nothing)
    want = reduce(DataFrame.union, [compile_scan(specs, read_from(rows), *one) for one in outputs], nothing)
    return Verification(begin, compare(have.where(is_due), want.where(is_due)), left_out)


def _ranges(joins: dict[str, JoinSpec], outputs: Iterable[Range]) -> tuple[Range, ...]:
    """Return all ranges that are read to verify ranges of outputs, these included."""
    specs = list(joins.values())
    return united(need for one in outputs for need in ranges_read(specs, *one) if need.first < need.last)


def _left_out(joins: dict[str, JoinSpec]) -> dict[str, str]:
    """Return the joins whose rows depend on the clock, with the reason for each."""
    found: dict[str, str] = {}
    for name, spec in joins.items():
        if isinstance(spec.maintenance, Snapshot):
            found[name] = "it shows snapshots, which are of any moment within their age"
    todo = list(found)
    while todo:
        timed = todo.pop()
        for name, spec in joins.items():
            if name not in found and any(may_overlap(each.pattern, joins[timed].output) for each in spec.sources):
                found[name] = f"it reads what the snapshot join {timed!r} shows"
                todo.append(name)
    return found


def _chosen(joins: dict[str, JoinSpec], left_out: dict[str, str], join: str | None) -> list[JoinSpec]:
    if join is None:
        return [spec for name, spec in joins.items() if name not in left_out]
    if join not in joins:
        raise VerifyError(f"no join is called {join!r}; installed: {', '.join(joins) or 'none'}")
    if join in left_out:
        raise VerifyError(f"the join {join!r} cannot be verified: {left_out[join]}")
    return [joins[join]]


def _outputs(specs: Sequence[JoinSpec], first: bytes, last: bytes | None) -> tuple[Range, ...]:
    """Return the ranges that hold the outputs of joins within ``[first, last)``."""
    clipped = [Range(*meet(first, last, keys_of(spec.output))) for spec in specs]
    return united(one for one in clipped if one.first < one.last)


def _hides_sources(follower: Follower, specs: Iterable[JoinSpec]) -> bool:
    """Return whether the watches may have missed changes of the joins' sources."""
    sources = [keys_of(source.pattern) for spec in specs for source in spec.sources]
    return any(one.first < last and first < one.last for one in follower.unwatchable for first, last in sources)


def _undone(read: DataFrame, changed: dict[bytes, bytes | None]) -> DataFrame:
    """Return the rows as they were before the changes."""
    spark = read.sparkSession
    table = pa.table({"key": pa.array(changed.keys(), pa.binary()), "value": pa.array(changed.values(), pa.binary())})
    before = spark.createDataFrame(table)
    return read.join(before.select("key"), "key", "left_anti").union(before.where(f.col("value").isNotNull()))


def _matches(specs: Iterable[JoinSpec]) -> Column:
    return reduce(or_, [take_apart(spec.output, f.col("key")).matches for spec in specs], f.lit(col=False))
