"""A backfill driven by Spark: begin, read the sources as they were, compute, sort, load, end.

    server   begin -> revision R, the ranges of the sources                  records what changes
    Spark    read the sources as of R          or a file with the same rows
             compute what follows              pieces.compile_pieces
             count it, choose where to cut     cutting.survey
             partition by range, sort          ranges.sorted_ranges
             load, a task for each partition   loads.Requests
    server   end

If a task or the driver dies, the loaded rows stay right. A task that runs again loads what is missing of its partition;
a driver that runs again begins a new backfill, leaves out the contexts that are there, and does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
from pequod_grammar import parse
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pequod.answers.explanations import PartState
from pequod.answers.rows import Rows
from pequod.calls import BackfillStatus
from pequod.client import Client
from pequod.errors import PequodError, UnknownJoinError
from pequod.language.ranges import Range, united
from pequod.language.spec import JoinSpec
from pequod_spark.cutting import FEW_SOURCES, PART_ROWS, Contexts, survey
from pequod_spark.leases import Lease
from pequod_spark.loads import PartitionRange, Requests
from pequod_spark.pieces import compile_pieces, with_contexts
from pequod_spark.plan import Read, contributes_once
from pequod_spark.ranges import clip, sorted_ranges
from pequod_spark.reading import cut_ranges, fetched
from pequod_spark.session import refuse_connect
from pequod_spark.tasks import freeze_imports

_OUTCOME_SCHEMA: Final = "ranges bigint, rows bigint, skipped bigint, begun double, ended double"

#: Opens a client; it goes to the tasks, so it must pickle.
Connect = Callable[[], Client]
#: Called every few seconds with the server's status of the backfill.
OnProgress = Callable[[BackfillStatus], None]


class BackfillFailedError(PequodError):
    """Spark could not finish a backfill; the rows that were loaded stay."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the backfill failed: {reason}; run it again, and what is loaded already is left out")
        self.reason = reason


class SourceDiffersError(PequodError):
    """A copy of the sources differs from the rows that the server had when the backfill began."""

    def __init__(self, first: bytes, last: bytes, copied_rows: int, held_rows: int) -> None:
        said = "other ones" if copied_rows == held_rows else f"{copied_rows:,}"
        super().__init__(
            f"the server has {held_rows:,} rows between {first!r} and {last!r}, and the source {said}; nothing was "
            "loaded: make a copy of what the server has now, or let Spark read the server (`--source server`)"
        )
        self.first = first
        self.last = last


class Outcome(NamedTuple):
    """The result of a backfill."""

    #: Contexts that were materialised before; the backfill left them out.
    contexts_before: int
    #: Ranges and rows that were loaded.
    ranges: int
    rows: int
    #: Pieces whose ranges a reader or another load materialised meanwhile.
    skipped: int
    #: From the first request to the end of the last one, by the clocks of the tasks (seconds).
    load_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """What to compute."""

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
    """Compute a join and load it into a server, while other clients read and write; see `Begun`.

    Raises:
        ClassicSessionError: The session is a client of Spark Connect.
    """
    refuse_connect(spark, "a backfill")
    return Begun(connect, request).run(spark, read=read, on_progress=on_progress)


def count_sources(client: Client, status: BackfillStatus) -> int:
    """Return how many rows a server has in the ranges of a backfill's sources, also if another server began it."""
    return sum(client.explain_range(first, last).stored_keys for first, last in united(status.sources))


class Begun:
    """A backfill that a server has begun: the server records changes of the sources and waits for Spark's rows.

    So the server refuses, before Spark starts, what it will not do.

    Args:
        connect: Opens a client; it goes to Spark's tasks.
        request: What to compute.

    Requires:
        `run` or `close` is called.

    Raises:
        NotBackfillableError, UnknownJoinError: The server refuses the backfill.
        PequodError: As the clients.
    """

    def __init__(self, connect: Connect, request: Request) -> None:
        #: Opens a client.
        self.connect = connect
        self._request = request
        self._client = connect()
        try:
            self._spec = _spec_of(self._client, request.join)
            self.status = self._client.backfills.begin(request.join, request.first, request.last, level=request.level)
        except BaseException:
            self._client.close()
            raise
        #: The id of the server that began it.
        self.server_id = self._client.server_id
        #: How many source rows the server had when it began.
        self.source_count = count_sources(self._client, self.status)
        self._lease = Lease(self._client, self.status)
        self._is_closed = False

    def close(self, reason: str = "failed") -> None:
        """End the backfill, unless it has ended; the rows that were loaded stay."""
        if self._is_closed:
            return
        self._is_closed = True
        self._lease.release()
        with suppress(PequodError):
            self._client.backfills.end(self.status, reason)
        self._client.close()

    def run(
        self, spark: SparkSession, *, read: Read | None = None, on_progress: OnProgress = lambda _status: None
    ) -> Outcome:
        """Compute and load the rows, and end the backfill.

        Args:
            spark: A session.
            read: Reads the sources as they were when the backfill began; their number and a checksum are compared with
                the server's. None: read the server.
            on_progress: Called with the progress every few seconds, in another thread.

        Raises:
            BackfillEndedError: An operator cancelled it, or the server ended it.
            SourceDiffersError: ``read`` gives rows other than those that the server had when the backfill began.
            BackfillFailedError: Spark failed.
        """
        run = _Run(spark, self.connect, self._client, self.status, self._spec, self._lease)
        self._lease.on_progress = on_progress
        try:
            with run.cancelled_with_lease():
                if read is not None:
                    run.compare(read)
                outcome = run.load(read or run.read_server(), self._request.part_rows, self.source_count)
            self._client.backfills.end(self.status, "finished")
        except BaseException as error:
            self.close("cancelled" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        self.close()
        return outcome


class _Run:
    """Spark's part of one backfill."""

    def __init__(
        self,
        spark: SparkSession,
        connect: Connect,
        client: Client,
        status: BackfillStatus,
        spec: JoinSpec,
        lease: Lease,
    ) -> None:
        self._spark = spark
        self._connect = connect
        self._client = client
        self._status = status
        self._spec = spec
        self._lease = lease
        self._contexts = Contexts(spec, status.level)
        self._read: dict[tuple[bytes, bytes | None], DataFrame] = {}

    @contextmanager
    def cancelled_with_lease(self) -> Iterator[None]:
        """Cancel Spark's jobs if the server ends the backfill, and raise its reason; release the lease at the end."""
        context, group = self._spark.sparkContext, f"pequod backfill {self._status.id:x}"
        context.setJobGroup(group, f"backfill of {self._status.join}", interruptOnCancel=True)
        self._lease.on_end = lambda: context.cancelJobGroup(group)
        self._lease.stage = "reading the sources"
        try:
            self._lease.refuse_ended()
            yield
        except KeyboardInterrupt:
            context.cancelJobGroup(group)
            raise
        except PequodError:
            raise
        except Exception as error:
            context.cancelJobGroup(group)
            raise self._lease.ended or BackfillFailedError(_reason(error)) from error
        finally:
            self._lease.release()
            for rows in self._read.values():
                rows.unpersist()
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

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
            # Sources of one table may overlap; each row is read once.
            ranges = cut_ranges(self._client, united(within), parts)
            # Persisted, so read once; rows that are lost with an executor are read again, as of the same revision.
            self._read[first, last] = fetched(self._spark, ranges, fetch).persist()
            return self._read[first, last]

        return read

    def compare(self, read: Read) -> None:
        """Check that a copy of the sources equals the rows that the server had when the backfill began.

        Raises:
            SourceDiffersError: It does not.
        """
        self._lease.stage = "comparing the sources"
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

    def load(self, read: Read, part_rows: int, source_count: int) -> Outcome:
        """Compute, sort and load the rows; ``source_count`` is the number of source rows."""
        status = self._status
        covered = self._covered()
        prefixes = None
        if covered:
            prefixes = self._spark.createDataFrame(pa.table({"prefix": pa.array(covered, pa.binary())}))

        def pieces(one_of: int) -> DataFrame:
            within = status.first, status.last
            return compile_pieces(self._spec, status.level, read, *within, prefixes, one_of=one_of)

        self._lease.stage = "computing"
        # Of a sample of the sources, groups have other rows than of all.
        can_sample = self._spec.keep is None and contributes_once(self._spec) and source_count > FEW_SOURCES
        found = survey(pieces, part_rows, can_sample=can_sample)
        self._lease.rows_expected = found.row_count
        splits = self._contexts.splits(found, status.first, status.last, part_rows)
        self._lease.stage = "sorting and loading"
        bounds = [status.first, *splits, status.last]
        parts = [PartitionRange(first, last, self._contexts.inside(first)) for first, last in pairwise(bounds)]
        ordered = with_contexts(self._spec, status.level, sorted_ranges(pieces(1), splits))
        outcomes = ordered.mapInArrow(self._loader(parts), _OUTCOME_SCHEMA)
        sums = [f.sum(name).alias(name) for name in ("ranges", "rows", "skipped")]
        total = outcomes.agg(*sums, (f.max("ended") - f.min("begun")).alias("load_s")).first()
        assert total is not None
        return Outcome(len(covered), total.ranges or 0, total.rows or 0, total.skipped or 0, total.load_s or 0.0)

    def _loader(self, parts: list[PartitionRange]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """Return the function that a task runs on its partition."""
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
        """Return the prefixes of the contexts that are materialised in the backfill's range, up to its end."""
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
    """Return the line of Spark's long message that has the error of a task."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line.startswith(("pequod.", "pequod_lake."))]
    return (told[-1].partition(": ")[2] if told else next((line for line in lines if line), type(error).__name__))[:500]
