"""Ingest: uploads of many threads put together into SCUs, durable before they are acknowledged.

    uploader ---submit---> [ waiting uploads, bounded ] ---one thread---> files, fsync, catalog ---> acknowledged
    uploader ---submit--->

An SCU closes when it has enough rows or bytes, or when its first upload has waited long enough. Each process has an
`Ingestor` of its own; the catalog puts their SCUs in one order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import assert_never

from pequod_lake.catalog import AlreadyTaken, Committed, LakeCatalog, NewScu
from pequod_lake.closing import Closing
from pequod_lake.coordination import Coordinator
from pequod_lake.errors import LakeBusyError, LakeError, WriterLostError
from pequod_lake.runs import LakeFile
from pequod_lake.schema import LakeSchema
from pequod_lake.uploads import Upload, joined
from pequod_lake.writing import FileWriter

#: Called with the name of each step of the stages, so that tests can end the process there.
AtPoint = Callable[[str], None]


def no_point(_name: str) -> None:
    """Do nothing at the named steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestLimits:
    """When an SCU closes, and how much may wait."""

    scu_rows_max: int = 1_000_000
    scu_bytes_max: int = 256 << 20
    #: How long the first upload of an SCU waits for others.
    scu_age_s: float = 0.2
    #: Bytes of uploads that wait or are being written; more makes uploaders wait, and is then refused.
    waiting_bytes_max: int = 512 << 20
    wait_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An upload is durable, and visible to queries of the newest state."""

    scu: int
    #: Whether it had been taken before, so that nothing was done now.
    is_repeated: bool


class ScuWriter:
    """Writes uploads as one SCU."""

    def __init__(self, schema: LakeSchema, catalog: LakeCatalog, writer: FileWriter, at_point: AtPoint) -> None:
        self._schema = schema
        self._catalog = catalog
        self._writer = writer
        self._at_point = at_point

    def take(self, uploads: Sequence[Upload]) -> dict[str, Acknowledged]:
        """Make uploads durable and visible in one SCU, without those that are in the lake.

        Raises:
            LakeError: It could not be written; nothing of the uploads is visible.
        """
        done = dict[str, Acknowledged]()
        wanted = list({upload.id: upload for upload in reversed(uploads)}.values())[::-1]
        while wanted := [upload for upload in wanted if upload.id not in done]:
            files = self._write(wanted)
            self._at_point("ingest.written")
            # If this fails, nobody knows whether the catalog has the files. They stay, and a sweep finds out.
            result = self._commit(wanted, files)
            self._at_point("ingest.committed")
            match result:
                case Committed(scu):
                    done |= {upload.id: Acknowledged(scu, is_repeated=False) for upload in wanted}
                case AlreadyTaken(scus):
                    # Another process took them in the meantime: the others are written again without them.
                    self._writer.remove(files)
                    done |= {upload: Acknowledged(scu, is_repeated=True) for upload, scu in scus.items()}
                case _:
                    assert_never(result)
        return done

    def _commit(self, uploads: Sequence[Upload], files: Sequence[LakeFile]) -> Committed | AlreadyTaken:
        try:
            return self._catalog.commit(NewScu(tuple(one.id for one in uploads), tuple(files)))
        except WriterLostError as error:
            self._writer.renew(error.writer)
            raise

    def _write(self, uploads: Sequence[Upload]) -> list[LakeFile]:
        files = list[LakeFile]()
        try:
            for table in self._schema.tables:
                if pieces := joined(uploads, table.name):
                    file = self._writer.write("raw", table, table.primary, pieces, raw=True)
                    assert file is not None
                    files.append(file)
                    self._at_point("ingest.file")
        except BaseException:
            self._writer.remove(files)
            raise
        return files


@dataclass(slots=True)
class _Sender:
    """An upload that waits, and who waits for it."""

    upload: Upload
    future: Future[Acknowledged]


class Ingestor(Closing):
    """Takes uploads of many threads.

    Invariants:
        1. The bytes of waiting uploads, and of those that are being written, are at most ``waiting_bytes_max``, or
           they are of one upload.
    """

    def __init__(
        self,
        schema: LakeSchema,
        catalog: LakeCatalog,
        coordinator: Coordinator,
        writer: FileWriter,
        limits: IngestLimits,
        at_point: AtPoint = no_point,
    ) -> None:
        self._schema = schema
        self._coordinator = coordinator
        self._limits = limits
        self._scus = ScuWriter(schema, catalog, writer, at_point)
        self._changed = threading.Condition()
        self._waiting: list[_Sender] = []
        self._waiting_bytes = 0
        self._first_s = 0.0
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="lake-ingest", daemon=True)
        self._thread.start()

    def upload(self, id: str) -> Upload:  # noqa: A002 - the word for it
        """Return an empty upload with an id, which the same rows must always have."""
        return Upload(self._schema, id)

    def submit(self, upload: Upload) -> Future[Acknowledged]:
        """Hand over an upload; the future is done when it is durable.

        Raises:
            LakeBusyError: Too much is waiting, for longer than ``wait_s``; nothing was kept.
        """
        future: Future[Acknowledged] = Future()
        if scus := self._coordinator.taken([upload.id]):
            future.set_result(Acknowledged(scus[upload.id], is_repeated=True))
            return future
        with self._changed:
            until_s = monotonic() + self._limits.wait_s
            while self._waiting_bytes and self._waiting_bytes + upload.size_bytes > self._limits.waiting_bytes_max:
                left_s = until_s - monotonic()
                if left_s <= 0 or self._is_closing:
                    raise LakeBusyError(f"{self._waiting_bytes:,} bytes of uploads wait to be written")
                self._changed.wait(left_s)
            if self._is_closing:
                raise LakeBusyError("it is closing")
            if not self._waiting:
                self._first_s = monotonic()
            self._waiting.append(_Sender(upload, future))
            self._waiting_bytes += upload.size_bytes
            self._changed.notify_all()
        return future

    def take(self, upload: Upload) -> Acknowledged:
        """Hand over an upload and wait until it is durable.

        Raises:
            LakeBusyError: Too much is waiting; nothing was kept.
            LakeError: It could not be written; nothing of it is visible.
        """
        return self.submit(upload).result()

    def close(self) -> None:
        """Write what waits, and end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while senders := self._next():
            try:
                done = self._scus.take([sender.upload for sender in senders])
            except LakeError as error:
                for sender in senders:
                    sender.future.set_exception(error)
            except BaseException as error:
                for sender in senders:
                    sender.future.set_exception(LakeError(f"an SCU could not be written: {error!r}"))
                raise
            else:
                for sender in senders:
                    sender.future.set_result(done[sender.upload.id])
            finally:
                with self._changed:
                    self._waiting_bytes -= sum(sender.upload.size_bytes for sender in senders)
                    self._changed.notify_all()

    def _next(self) -> list[_Sender]:
        """Wait until an SCU closes, and return its uploads; none at the end."""
        limits = self._limits
        with self._changed:
            while True:
                count, rows, size_bytes = 0, 0, 0
                for sender in self._waiting:
                    if count and (
                        rows + sender.upload.row_count > limits.scu_rows_max
                        or size_bytes + sender.upload.size_bytes > limits.scu_bytes_max
                    ):
                        break
                    count, rows = count + 1, rows + sender.upload.row_count
                    size_bytes += sender.upload.size_bytes
                is_full = (
                    count < len(self._waiting) or rows >= limits.scu_rows_max or size_bytes >= limits.scu_bytes_max
                )
                left_s = self._first_s + limits.scu_age_s - monotonic()
                if self._waiting and (is_full or left_s <= 0 or self._is_closing):
                    senders, self._waiting = self._waiting[:count], self._waiting[count:]
                    return senders
                if self._is_closing:
                    return []
                self._changed.wait(left_s if self._waiting else None)
