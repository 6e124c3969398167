"""The sources of a backfill, read from the lake behind the server: as of the SCU at which the backfill began.

    server   all rows of its sources are of one position of the lake's feed; begin -> revision R, token (lake 41)
    Spark    the state of the lake after SCU 41, rows made into keys and values as the server makes them

What the server gets of later SCUs are changes since R, which it records and applies as those of clients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from pequod_lake import Lake
from pequod_lake.errors import LakeError
from pequod_lake.leases import end_lease
from pequod_lake.states import LakeState
from pequod_server.backing.lake.rows import rows_of
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.store import KeyRange
from pyspark.sql import DataFrame, SparkSession

from pequod.answers.rows import Rows
from pequod.errors import PequodError
from pequod.freshness import Mark, Token, database_of
from pequod.language.ranges import united
from pequod_spark.backfill import Begun
from pequod_spark.plan import Read, read_from
from pequod_spark.reading import cut_ranges, fetched

#: Rows of one task, which it has in memory as Python's objects.
_TASK_ROWS: Final = 250_000
#: For so long the state stays after a task has last used it, should the driver's lock break.
_LEASE_S: Final = 3600.0


class OtherLakeError(PequodError):
    """The database behind the server is not this lake."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"the lake {place} is not behind the server; name that of its `--backing lake:PLACE`, or let Spark "
            "read the server (`--source server`)"
        )
        self.place = place


class LakeSource:
    """Reads the sources of one backfill from a lake, while it is open; tasks open no catalog.

    Args:
        location: The lake: its folder, or its address.
        begun: The backfill.
        mappings: How rows become keys and values, the same as the server's.

    Raises:
        OtherLakeError: The server's database is not the lake.
        LakeError: There is no lake, or it does not keep the state at which the backfill began.
    """

    def __init__(self, location: str, mappings: Sequence[Mapping], begun: Begun) -> None:
        self._location = location if "://" in location else str(Path(location).resolve())
        self._mappings = tuple(mappings)
        self._begun = begun
        self._rows: DataFrame | None = None
        self._lake = Lake(self._location)
        try:
            self.scu = scu_of(self._lake, begun.status.token)
            # Held until the end, so that its files stay.
            self._snapshot = self._lake.snapshot_at(scu=self.scu)
            self._state = LakeState.of(self._snapshot, self._location, _LEASE_S)
        except BaseException:
            self._lake.close()
            raise

    def __enter__(self) -> Self:
        """Return the source."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let the files go."""
        if self._rows is not None:
            self._rows.unpersist()
        with suppress(LakeError):
            end_lease(self._lake.place.files, self._state.lease)
        self._snapshot.close()
        self._lake.close()

    def read(self, spark: SparkSession) -> Read:
        """Return what reads the rows of all sources, once."""
        state, mappings = self._state, self._mappings

        def fetch(first: bytes, last: bytes) -> Iterator[Rows]:
            with state.opened() as snapshot:
                # A row that the server cannot hold is not in the server either.
                found = rows_of(snapshot, mappings, [KeyRange(first, last)], lambda _error: None)
            keys = sorted(found)
            yield Rows(keys, [found[key] for key in keys])

        begun = self._begun
        parts = max(spark.sparkContext.defaultParallelism * 2, -(-begun.source_count // _TASK_ROWS))
        with begun.connect() as client:
            ranges = cut_ranges(client, united(begun.status.sources), parts)
        self._rows = fetched(spark, ranges, fetch).persist()
        return read_from(self._rows)


def scu_of(lake: Lake, token: Token) -> int:
    """Return the SCU of a lake that a server's token names.

    Raises:
        OtherLakeError: It names none of this lake.
    """
    scu = token.positions.get(Mark(database_of("lake", lake.catalog.name), 1))
    if scu is None:
        raise OtherLakeError(lake.place.name)
    return scu
