"""A backfill driven by Spark: begin, read the sources as they were, compute, sort, load, end.

    server   begin -> revision R, the ranges of the sources                  records what changes
    Spark    read the sources as of R          or a file that holds what they were
             compute what follows              pieces.compile_pieces
             how much it is, where to cut it   cutting.survey
             partition by range, sort          ranges.sorted_ranges
             load, a task for each partition   loads.Requests
    server   end

Whatever dies on the way, what was loaded stays right. A task that is run again loads what is missing of its partition;
a driver that is run again begins a new backfill, leaves out the contexts that are there, and does the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final, NamedTuple

import pyarrow as pa
from pequod_grammar import parse
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.calls import BackfillStatus
from pequod.client import Client
from pequod.engine.containing import keys_of, meet
from pequod.engine.explain import PartState
from pequod.engine.ranges import Range, united
from pequod.engine.rows import Rows
from pequod.engine.spec import JoinSpec
from pequod.errors import BackfillEndedError, PequodError, UnknownBackfillError, UnknownJoinError
from pequod_spark.cutting import FEW_ROWS, PART_ROWS, Contexts, survey
from pequod_spark.loads import Part, Requests
from pequod_spark.needs import needs
from pequod_spark.pieces import compile_pieces, with_contexts
from pequod_spark.plan import Read, is_unique
from pequod_spark.ranges import clip, sorted_ranges
from pequod_spark.reading import cut_ranges, fetched
from pequod_spark.tasks import freeze_imports

#: At most; at least three times in a lease.
_RENEW_S: Final = 2.0
_OUTCOME_SCHEMA: Final = "ranges bigint, rows bigint, skipped bigint, begun double, ended double"

#: Open a client; it goes to the tasks, so it must pickle.
Connect = Callable[[], Client]
#: Called now and then with the server's status of the backfill.
OnProgress = Callable[[BackfillStatus], None]


class BackfillFailedError(PequodError):
    """Spark could not do a backfill; what was loaded stays."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the backfill failed: {reason}; run it again, and what is loaded already is left out")
        self.reason = reason


class SourceDiffersError(PequodError):
    """A copy of the sources is not what the server had when the backfill began."""

    def __init__(self, first: bytes, last: bytes, copied_rows: int, held_rows: int) -> None:
        said = "other ones" if copied_rows == held_rows else f"{copied_rows:,}"
        super().__init__(
            f"the server has {held_rows:,} rows between {first!r} and {last!r}, and the source {said}; nothing was "
            "loaded: make a copy of what the server has now, or let Spark read the server (`--source server`)"
        )
        self.first = first
        self.last = last


class Outcome(NamedTuple):
    """What a backfill did."""

    #: Contexts that were there before, and were left out.
    contexts_before: int
    #: Ranges and rows that were loaded.
    ranges: int
    rows: int
    #: Pieces that somebody else materialised meanwhile.
    skipped: int
    #: From the first request to the end of the last one, by the clocks of the tasks (seconds).
    load_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be done."""

    join: str
    first: bytes = b""
    last: bytes | None = None
    level: int | None = None
    #: Rows in one partition.
    part_rows: int = PART_ROWS


def backfill(
    spark: SparkSession,
    connect: Connect,
    request: Request,
    *,
    read: Read | None = None,
    on_progress: OnProgress = lambda _status: None,
) -> Outcome:
    """Compute a range of a join with Spark and load it into a server, while reads and writes go on.

    Args:
        spark: The session; its tasks must reach the server.
        connect: Opens a client of the server.
        request: What to compute.
        read: Gives the source rows as they are when the backfill begins, which is compared by their number and a
            checksum; None: the server's own.
        on_progress: Told of the progress every few seconds, from another thread.

    Raises:
        NotBackfillableError, UnknownJoinError: The server says that it cannot be.
        BackfillEndedError: It was cancelled, or the server ended it.
        SourceDiffersError: ``read`` gives other rows than the server had when the backfill began.
        BackfillFailedError: Spark failed.
    """
    with connect() as client:
        spec = _spec_of(client, request.join)
        status = client.backfills.begin(request.join, request.first, request.last, level=request.level)
        run = _Run(spark, connect, client, status, spec, on_progress)
        try:
            with run.renewing():
                if read is not None:
                    run.compare(read)
                outcome = run.load(read or run.read_server(), request.part_rows)
        except BaseException as error:
            with suppress(PequodError):
                client.backfills.end(status, "cancelled" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        client.backfills.end(status, "finished")
        return outcome


class _Run:
    """One backfill under way."""

    def __init__(
        self,
        spark: SparkSession,
        connect: Connect,
        client: Client,
        status: BackfillStatus,
        spec: JoinSpec,
        on_progress: OnProgress,
    ) -> None:
        self._spark = spark
        self._connect = connect
        self._client = client
        self._status = status
        self._spec = spec
        self._on_progress = on_progress
        self._contexts = Contexts(spec, status.level)
        self._stage = "reading the sources"
        self._rows_expected = 0
        self._read: dict[tuple[bytes, bytes | None], DataFrame] = {}
        #: Why the server ended the backfill, if it did.
        self._ended: PequodError | None = None

    @contextmanager
    def renewing(self) -> Iterator[None]:
        """Keep the backfill alive, and tell of its progress; if it ends, cancel Spark's jobs."""
        stopped = threading.Event()
        group = f"pequod backfill {self._status.id:x}"

        def renew() -> None:
            while not stopped.wait(min(_RENEW_S, self._status.lease_s / 3)):
                try:
                    self._on_progress(self._client.backfills.renew(self._status, self._stage, self._rows_expected))
                except (BackfillEndedError, UnknownBackfillError) as error:
                    self._ended = error
                    self._spark.sparkContext.cancelJobGroup(group)
                    return
                except PequodError:
                    # The tasks will say what is wrong, if it stays so.
                    continue

        thread = threading.Thread(target=renew, name=group, daemon=True)
        self._spark.sparkContext.setJobGroup(group, f"backfill of {self._status.join}", interruptOnCancel=True)
        thread.start()
        try:
            yield
        except KeyboardInterrupt:
            self._spark.sparkContext.cancelJobGroup(group)
            raise
        except PequodError:
            raise
        except Exception as error:
            self._spark.sparkContext.cancelJobGroup(group)
            raise self._ended or BackfillFailedError(_reason(error)) from error
        finally:
            stopped.set()
            thread.join()
            for rows in self._read.values():
                rows.unpersist()
            self._spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    def read_server(self) -> Read:
        """Return a reader of the sources as they were when the backfill began."""
        connect, status = self._connect, self._status
        parts = self._spark.sparkContext.defaultParallelism * 2

        def fetch(first: bytes, last: bytes) -> Iterator[Rows]:
            with connect() as client:
                at: bytes | None = first
                while at is not None:
                    rows, at = client.backfills.read(status, at, last)
                    yield rows

        def read(first: bytes, last: bytes | None) -> DataFrame:
            if (first, last) in self._read:
                return self._read[first, last]
            within = [clipped for source in status.sources if (clipped := _clip(source, first, last)) is not None]
            # Sources of one table may overlap; no row is to be read twice.
            ranges = cut_ranges(self._client, united(within), parts)
            # Read once; what is lost with an executor is read again, and is still of the same moment.
            self._read[first, last] = fetched(self._spark, ranges, fetch).persist()
            return self._read[first, last]

        return read

    def compare(self, read: Read) -> None:
        """See that somebody's copy of the sources is what the server had when the backfill began.

        Raises:
            SourceDiffersError: It is not.
        """
        self._stage = "comparing the sources"
        for first, last in united(self._status.sources):
            row = f.concat("key", f.lit(b"\0"), "value")
            told = clip(read(first, last), first, last).agg(
                f.count(row).alias("rows"), f.sum(f.crc32(row)).alias("sum")
            )
            copied = told.first()
            assert copied is not None
            held = self._client.backfills.digest(self._status, first, last)
            if (copied.rows, copied["sum"] or 0) != held:
                raise SourceDiffersError(first, last, copied.rows, held.row_count)

    def load(self, read: Read, part_rows: int) -> Outcome:
        """Compute, sort and load."""
        status = self._status
        covered = self._covered()
        prefixes = None
        if covered:
            prefixes = self._spark.createDataFrame(pa.table({"prefix": pa.array(covered, pa.binary())}))

        def pieces(one_of: int) -> DataFrame:
            within = status.first, status.last
            return compile_pieces(self._spec, status.level, read, *within, prefixes, one_of=one_of)

        self._stage = "computing"
        found = survey(pieces, part_rows, can_sample=is_unique(self._spec) and self._rows_max() > FEW_ROWS)
        self._rows_expected = found.row_count
        splits = self._contexts.splits(found, status.first, status.last, part_rows)
        self._stage = "sorting and loading"
        bounds = [status.first, *splits, status.last]
        parts = [Part(first, last, self._contexts.inside(first)) for first, last in pairwise(bounds)]
        ordered = with_contexts(self._spec, status.level, sorted_ranges(pieces(1), splits))
        outcomes = ordered.mapInArrow(self._loader(parts), _OUTCOME_SCHEMA)
        sums = [f.sum(name).alias(name) for name in ("ranges", "rows", "skipped")]
        total = outcomes.agg(*sums, (f.max("ended") - f.min("begun")).alias("load_s")).first()
        assert total is not None
        return Outcome(len(covered), total.ranges or 0, total.rows or 0, total.skipped or 0, total.load_s or 0.0)

    def _rows_max(self) -> int:
        """Return how many output rows there can be at most: one for each tuple of source keys."""
        within = meet(self._status.first, self._status.last, keys_of(self._spec.output))
        found = needs([], self._spec, *within)
        return prod(self._client.explain_range(*need.within).stored_keys for need in found)

    def _loader(self, parts: list[Part]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return what a task does with its partition."""
        connect, status, spec = self._connect, self._status, self._spec

        def load(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            freeze_imports()
            context = TaskContext.get()
            assert context is not None
            requests = Requests(status, spec, parts[context.partitionId()])
            with connect() as client:
                for request in requests.of(batches):
                    begun = time.time()
                    done = client.backfills.load(request)
                    cells = (done.ranges_loaded, done.rows_loaded, done.pieces_skipped, begun, time.time())
                    yield pa.record_batch(
                        [[cell] for cell in cells], names=["ranges", "rows", "skipped", "begun", "ended"]
                    )

        return load

    def _covered(self) -> list[bytes]:
        """Return the prefixes of the contexts that are materialised, as far as the backfill's range goes."""
        found = self._client.explain_range(self._status.first, self._status.last)
        prefixes = []
        for coverage in found.joins:
            if coverage.join != self._status.join:
                continue
            for part in coverage.parts:
                if part.state in (PartState.VALID, PartState.LOGGED):
                    prefix = self._contexts.prefix_of(part.first, part.last)
                    if prefix is not None and part.last >= min(self._contexts.end_of(prefix), self._status.last):
                        prefixes.append(prefix)
        return prefixes


def _clip(source: Range, first: bytes, last: bytes | None) -> Range | None:
    clipped = Range(max(source.first, first), source.last if last is None else min(source.last, last))
    return clipped if clipped.first < clipped.last else None


def _spec_of(client: Client, name: str) -> JoinSpec:
    text = next((join.text for join in client.joins() if join.name == name), None)
    if text is None:
        raise UnknownJoinError(name)
    (spec,) = parse(text)
    return spec


def _reason(error: Exception) -> str:
    """Return the line of Spark's long messages that says what happened in a task."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line.startswith("pequod.")]
    return (told[-1].partition(": ")[2] if told else next((line for line in lines if line), type(error).__name__))[:500]
