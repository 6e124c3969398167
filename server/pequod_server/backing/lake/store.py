"""A lake behind the cache: its SCUs are the commits, and their numbers the positions.

Ranges are loaded from a snapshot of the newest SCU. The feed goes from one SCU to the next: the primary keys of its
rows are in its files, and the rows of these keys before and after it are the changes. It holds the snapshot of the SCU
that it has told, so the files of the next ones stay until it comes to them.

The lake is read in threads, as each query blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
from pequod_lake import IngestLimits, Lake, LakeError, LakeSnapshot
from pequod_lake.errors import LakeBusyError, LakeSchemaError, NoLakeError, SnapshotGoneError, UploadRefusedError
from pequod_lake.ingest import Ingestor

from pequod.engine.transacting import TransactionLimits
from pequod.escapes import shown
from pequod.freshness import database_of
from pequod.language.transactions import Transaction
from pequod_server.backing.errors import BackingUnavailableError, PackError, SchemaError, WriteRefusedError
from pequod_server.backing.health import Backoff, FeedBrokenError, Health, mended
from pequod_server.backing.lake.rows import advice_of, key_columns, problems_of, rows_of, rows_with, written_row
from pequod_server.backing.mapping import Mapping
from pequod_server.backing.rows import result_of, sorted_in_steps
from pequod_server.backing.store import (
    Added,
    Addition,
    Changes,
    ConditionalChange,
    Event,
    History,
    IsWanted,
    KeyRange,
    Loaded,
    Place,
    Progress,
    Reload,
    RowChange,
    SequenceHorizon,
    Status,
    WrittenIf,
    WrittenThrough,
    WrittenTransaction,
    every_key,
    were_there,
    whole,
)

#: An SCU with more rows is not told row by row: what is loaded of its tables is loaded again.
_TOLD_ROWS_MAX: Final = 100_000
T = TypeVar("T")


class LakeStore:
    """A lake as the owner of the mapped keys."""

    def __init__(
        self, folder: str | Path, mappings: Sequence[Mapping], *, poll_s: float = 0.02, backoff: Backoff | None = None
    ) -> None:
        self.mappings = tuple(mappings)
        self._folder = folder if "://" in str(folder) else Path(folder)
        self._poll_s = poll_s
        self._backoff = backoff or Backoff()
        self._health = Health()
        self._closing = asyncio.Event()
        self._hurried = asyncio.Event()
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="lake")
        self._lake: Lake | None = None
        self._ingestor: Ingestor | None = None

    @property
    def status(self) -> Status:
        """The state of the change feed."""
        return self._health.status

    async def check(self) -> list[str]:
        """Compare the mappings with the schema and return advice."""

        def check(lake: Lake) -> list[str]:
            problems = [problem for mapping in self.mappings for problem in problems_of(lake.schema, mapping)]
            if problems:
                raise SchemaError(self._name, problems)
            return [advice for mapping in self.mappings for advice in advice_of(lake.schema, mapping)]

        return await self._run(check)

    async def described(self) -> list[list[str]]:
        """Return for each mapping, in their order, of which type each of its columns is."""

        def described(lake: Lake) -> list[list[str]]:
            tables = [(mapping, lake.schema.table(mapping.table)) for mapping in self.mappings]
            return [[f"{name} ({table.column(name).kind})" for name in mapping.columns] for mapping, table in tables]

        return await self._run(described)

    async def load(self, ranges: Sequence[KeyRange]) -> Loaded:
        """Read ranges as of the newest SCU."""

        def load(lake: Lake) -> Loaded:
            with lake.snapshot() as snapshot:
                rows = rows_of(snapshot, self.mappings, ranges, self._health.unpackable)
                horizon = SequenceHorizon(snapshot.scu, snapshot.scu)
            # In steps: while a list is sorted, no other thread can run Python.
            return Loaded(tuple(result_of(sorted_in_steps(rows.items()))), horizon)

        return await self._run(load)

    def changes(self, since: int | None = None, is_wanted: IsWanted = every_key) -> AsyncIterator[Event]:
        """Yield the events after a position."""

        def session(since: int | None) -> AsyncGenerator[Event, None]:
            return self._session(since, is_wanted)

        return mended(session, since, self._everything(), self._health, self._backoff, self._closing)

    async def write(self, changes: Sequence[RowChange]) -> WrittenThrough:
        """Write changes as one upload; an upload does not tell which rows were there, so the lake is asked before."""
        doomed = [change.key for change in changes if change.value is None]
        loaded = await self.load([KeyRange(key, key + b"\0") for key in doomed]) if doomed else None
        found = were_there(changes, () if loaded is None else dict(loaded.rows))

        def write(lake: Lake) -> Place:
            if self._ingestor is None:
                self._ingestor = lake.ingestor(IngestLimits(scu_age_s=0.0))
            upload = self._ingestor.upload(f"pequod-{secrets.token_hex(16)}")
            for kind, table, rows in self._rows_of_writes(lake, changes):
                columns = {name: [row[name] for row in rows] for name in rows[0]}
                (upload.put if kind == "put" else upload.delete)(table, columns)
            try:
                return Place(1, self._ingestor.take(upload).scu)
            except LakeBusyError as error:
                raise BackingUnavailableError(self._name, str(error)) from error

        try:
            return WrittenThrough(await self._run(write), found)
        except (UploadRefusedError, LakeSchemaError) as error:
            raise WriteRefusedError(self._name, str(error)) from error

    async def write_if(self, change: ConditionalChange) -> WrittenIf:
        """Refuse: uploads of several writers are put in an order after they were taken, so none can decide."""
        raise WriteRefusedError(
            self._name, f"a lake takes no writes under a condition, as of key {shown(change.key)}; put it without one"
        )

    async def transact(self, transaction: Transaction, limits: TransactionLimits) -> WrittenTransaction:  # noqa: ARG002 - none
        """Refuse, as `write_if` does."""
        raise WriteRefusedError(self._name, "a lake takes no transactions; put without compares")

    async def add(self, addition: Addition) -> Added:
        """Refuse, for the same reason."""
        raise WriteRefusedError(
            self._name, f"a lake adds to no values, as of key {shown(addition.key)}; put the sum, or keep a `sum` join"
        )

    async def position(self) -> Place:
        """Return the number of the newest SCU."""
        return Place(1, await self._run(lambda lake: lake.catalog.snapshot().scu))

    async def latest(self) -> Place:
        """Return the number of the newest SCU: a catalog that can be read is the lake."""
        return await self.position()

    def hurry(self, position: int) -> None:  # noqa: ARG002 - the catalog is looked at as a whole
        """Look at the catalog now."""
        self._hurried.set()

    async def mark(self) -> str:
        """Return the lake's name, and the newest SCU with its moment: a copy that went another way has another one."""
        return await self._run(lambda lake: lake.catalog.mark())

    async def knows(self, mark: str) -> bool:
        """Return whether the lake has the SCU of the mark."""
        return await self._run(lambda lake: lake.catalog.knows(mark))

    async def close(self) -> None:
        """End the feed and close the lake."""
        self._closing.set()
        self._hurried.set()
        if self._ingestor is not None:
            await asyncio.to_thread(self._ingestor.close)
        self._threads.shutdown(wait=True)
        if self._lake is not None:
            self._lake.close()
        self._health.closed()

    @property
    def _name(self) -> str:
        return f"lake:{self._folder}"

    async def _run(self, work: Callable[[Lake], T]) -> T:
        """Work in a thread."""

        def run() -> T:
            try:
                if self._lake is None:
                    self._lake = Lake(self._folder)
                return work(self._lake)
            except NoLakeError as error:
                raise BackingUnavailableError(self._name, str(error)) from error

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except (UploadRefusedError, LakeSchemaError, SnapshotGoneError):
            raise
        except LakeError as error:
            raise BackingUnavailableError(self._name, str(error)) from error

    # The feed.

    async def _session(self, since: int | None, is_wanted: IsWanted) -> AsyncGenerator[Event, None]:
        history = History(database_of("lake", await self._run(lambda lake: lake.catalog.name)))
        told, is_lost = await self._run(lambda lake: _at(lake, since))
        try:
            if is_lost:
                yield Reload(told.scu, self._everything(), f"the state after SCU {since} is not kept", history)
            else:
                yield Progress(told.scu, history=history)
            while not self._closing.is_set():
                asked_s = self._health.now()
                newest = (await self.position()).position
                if told.scu < newest:
                    told, event = await self._run(self._step_from(told, is_wanted))
                    yield event
                if told.scu == newest:
                    self._health.stands(asked_s, 0)
                    await self._pause()
                else:
                    self._health.stands(None, newest - told.scu)
        finally:
            told.close()

    def _step_from(self, told: LakeSnapshot, is_wanted: IsWanted) -> Callable[[Lake], tuple[LakeSnapshot, Event]]:
        """Return the work that goes to the next SCU: the snapshot after it, and its changes."""

        def step(lake: Lake) -> tuple[LakeSnapshot, Event]:
            scu = told.scu + 1
            try:
                after = lake.snapshot_at(scu=scu)
            except SnapshotGoneError as error:
                raise FeedBrokenError(str(error), is_lost=True) from error
            try:
                event = self._event(lake, told, after, is_wanted)
            except BaseException:
                after.close()
                raise
            told.close()
            return after, event

        return step

    def _event(self, lake: Lake, before: LakeSnapshot, after: LakeSnapshot, is_wanted: IsWanted) -> Event:
        files = lake.catalog.committed_files(after.scu)
        if not files:
            raise FeedBrokenError(f"the files of SCU {after.scu} are not kept", is_lost=True)
        tables = {file.table for file in files}
        concerned = [mapping for mapping in self.mappings if mapping.table in tables]
        if sum(file.row_count for file in files) > _TOLD_ROWS_MAX:
            ranges = whole(concerned)
            return Reload(after.scu, ranges, f"SCU {after.scu} has more rows than are worth telling")
        changes = dict[bytes, bytes | None]()
        for mapping in concerned:
            names = lake.schema.table(mapping.table).key
            keys = pa.concat_tables([lake.reader.read(file, names) for file in files if file.table == mapping.table])
            old, new = (rows_with(one, mapping, keys, self._health.unpackable) for one in (before, after))
            changes |= dict.fromkeys(old)
            changes |= new
            for key, value in old.items():
                if new.get(key) == value:
                    del changes[key]
        wanted = [RowChange(key, value) for key, value in changes.items() if is_wanted(key)]
        return Changes(after.scu, after.scu, tuple(wanted))

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hurried.wait(), self._poll_s)
        if not self._closing.is_set():
            self._hurried.clear()

    def _everything(self) -> tuple[KeyRange, ...]:
        return whole(self.mappings)

    # Writes.

    def _rows_of_writes(
        self, lake: Lake, changes: Sequence[RowChange]
    ) -> list[tuple[str, str, list[dict[str, object]]]]:
        """Return the calls of an upload: rows of one table that are put or deleted, in the order of the changes."""
        calls: list[tuple[str, str, list[dict[str, object]]]] = []
        for change in {one.key: one for one in changes}.values():
            mapping = next((one for one in self.mappings if one.columns_of(change.key) is not None), None)
            if mapping is None:
                raise PackError(f"key {shown(change.key)}", "it is of no mapped pattern, or its slots do not fit")
            table = lake.schema.table(mapping.table)
            if {slot.name for slot in mapping.slots} != set(table.key):
                # A removal would take the row of another key: it goes by the primary key alone.
                raise WriteRefusedError(self._name, f"the slots of {mapping.pattern} are not the key of {table.name}")
            if change.value is None:
                kind, row = "delete", dict(key_columns(table, mapping, change.key))
            else:
                kind, row = "put", written_row(table, mapping, change.key, change.value)
            if calls and calls[-1][:2] == (kind, table.name) and calls[-1][2][0].keys() == row.keys():
                calls[-1][2].append(row)
            else:
                calls.append((kind, table.name, [row]))
        return calls


def _at(lake: Lake, scu: int | None) -> tuple[LakeSnapshot, bool]:
    """Return the state after an SCU, and whether that is not kept; then it is the newest state."""
    if scu is None:
        return lake.snapshot(), False
    try:
        return lake.snapshot_at(scu=scu), False
    except SnapshotGoneError:
        return lake.snapshot(), True
