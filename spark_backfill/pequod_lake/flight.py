"""Rows and queries over the network: Arrow Flight, which is gRPC with columns in Arrow's own format.

    DoPut  {"upload": "id", "table": "posts"}                  rows of an upload, as a stream of batches
    DoPut  {"upload": "id", "table": "posts", "delete": true}  keys to delete
    action commit {"upload": "id"}                             all streams of the upload become visible together
    action abort  {"upload": "id"}                             forget them
    DoGet  {"table": "posts", "where": [["id", "=", 7]], "freshness": "30s"}

Until its commit an upload is in this server's memory only: a client that breaks leaves nothing behind, and after
``upload_s`` without a word its rows are forgotten. Too many of them are refused with UNAVAILABLE.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from pequod_lake.errors import LakeBusyError, LakeCorruptError, LakeError
from pequod_lake.ingest import IngestLimits, Ingestor
from pequod_lake.lake import Lake
from pequod_lake.uploads import Upload

_MEMBERS: Final = {"upload", "table", "delete"}


@dataclass(slots=True)
class _Open:
    """An upload that is on its way."""

    upload: Upload
    #: When the last message came.
    heard_s: float
    #: Streams that have not ended.
    stream_count: int = 0
    is_broken: bool = False


class LakeFlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves a lake.

    Invariants:
        1. The bytes of open uploads are at most ``bytes_max`` and one batch for each stream.
    """

    def __init__(
        self,
        lake: Lake,
        location: str,
        limits: IngestLimits | None = None,
        *,
        upload_s: float = 60.0,
        bytes_max: int = 1 << 30,
    ) -> None:
        super().__init__(location)
        self._lake = lake
        self._ingestor: Ingestor = lake.ingestor(limits)
        self._upload_s = upload_s
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def close(self) -> None:
        """End the server; uploads without a commit are forgotten."""
        self.shutdown()
        self._ingestor.close()

    def do_put(self, _context: Any, descriptor: Any, reader: Any, _writer: Any) -> None:
        """Take one stream of rows of an upload."""
        with _told():
            order = _members(descriptor.command, {"upload", "table"}, _MEMBERS)
            entry = self._entry(order["upload"])
            try:
                for chunk in reader:
                    self._take(entry, order, chunk.data)
            except BaseException:
                # The rest of the upload must not become visible without this stream.
                entry.is_broken = True
                raise
            finally:
                with self._lock:
                    entry.stream_count -= 1

    def do_action(self, _context: Any, action: Any) -> Iterator[bytes]:
        """Commit an upload, or forget it."""
        with _told():
            name = _members(action.body.to_pybytes(), {"upload"}, {"upload"})["upload"]
            if action.type not in {"commit", "abort"}:
                raise LakeError(f"there is no action {action.type!r}; there are commit and abort")
            with self._lock:
                entry = self._open.pop(name, None)
            if action.type == "abort":
                return
            if entry is None:
                taken = self._lake.coordinator.taken([name])
                if name not in taken:
                    raise LakeError(f"there is no open upload {name!r}; send its rows, then commit it")
                yield json.dumps({"scu": taken[name], "is_repeated": True}).encode()
                return
            if entry.stream_count or entry.is_broken:
                raise LakeError(f"a stream of upload {name!r} has not ended well; send the upload again")
            yield json.dumps(asdict(self._ingestor.take(entry.upload))).encode()

    def do_get(self, _context: Any, ticket: Any) -> Any:
        """Answer a query; the metadata of the answer's schema says of which SCU it is, and how old."""
        with _told():
            known = {"table", "where", "view", "columns", "freshness"}
            query = _members(ticket.ticket, {"table"}, known)
            with self._lake.snapshot(query.get("freshness", "newest")) as snapshot:
                where: Any = [tuple(one) for one in query.get("where", ())]
                answer = snapshot.scan(query["table"], where, view=query.get("view"), columns=query.get("columns"))
            facts = {"scu": str(answer.scu), "age_s": str(answer.age_s)}
            return flight.RecordBatchStream(answer.rows.replace_schema_metadata(facts))

    def _entry(self, name: str) -> _Open:
        """Return an upload that is open, or open it."""
        now = monotonic()
        with self._lock:
            for other, one in list(self._open.items()):
                if not one.stream_count and now - one.heard_s > self._upload_s:
                    del self._open[other]
            entry = self._open.get(name)
            if entry is None:
                entry = self._open[name] = _Open(Upload(self._lake.schema, name), now)
            entry.stream_count += 1
        return entry

    def _take(self, entry: _Open, order: Mapping[str, Any], batch: Any) -> None:
        with self._lock:
            waiting = sum(one.upload.size_bytes for one in self._open.values())
            if waiting > self._bytes_max:
                raise LakeBusyError(f"{waiting:,} bytes of uploads wait for their commits")
            entry.heard_s = monotonic()
            if order.get("delete", False):
                entry.upload.delete(order["table"], batch)
            else:
                entry.upload.put(order["table"], batch)


@contextmanager
def _told() -> Iterator[None]:
    """Tell errors of the lake by the codes of gRPC."""
    try:
        yield
    except LakeBusyError as error:
        raise flight.FlightUnavailableError(str(error)) from error
    except LakeCorruptError as error:
        raise flight.FlightInternalError(str(error)) from error
    except LakeError as error:
        raise pa.ArrowInvalid(str(error)) from error


def _members(body: bytes, wanted: set[str], known: set[str]) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise LakeError(f"the command is no JSON: {error}") from error
    if not isinstance(found, dict) or not wanted <= set(found) <= known:
        raise LakeError(
            f"the command is an object with {', '.join(sorted(wanted))}, and maybe {', '.join(sorted(known))}"
        )
    return found
