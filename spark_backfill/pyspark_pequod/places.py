"""Offsets of streams: how far each range has been read.

    {}                                               nothing yet
    {"ranges": "9ae1", "0": {server_id, revision, key}}       the rows before `key`, as of the revision
    {"ranges": "9ae1", "0": {server_id, revision}}            all rows, and all changes up to the revision
    {"ranges": "9ae1", "0": {server_id, revision, taken}}     and some of the changes after it

Spark keeps them in the checkpoint, as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from pequod.errors import PequodError
from pyspark_pequod.narrowing import Bounds


class CheckpointError(PequodError):
    """A checkpoint of a query that read other ranges."""

    def __init__(self, range_count: int) -> None:
        super().__init__(
            f"the checkpoint is of a query that read other ranges than these {range_count}: a query keeps its ranges; "
            "start another one with a checkpoint of its own"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """How far a range has been read."""

    #: Revisions of servers with other ids cannot be compared.
    server_id: int
    #: The rows were read as of this revision, or all changes up to it.
    revision: int
    #: The first key whose row was not read; None if all rows were.
    key: bytes | None = None
    #: The number of changes after the revision that were read as well.
    taken: int = 0
    #: How often the range was begun with its rows.
    begun: int = 1


Offset = dict[str, Any]


def offset_of(places: Sequence[Place | None], ranges: Sequence[Bounds]) -> Offset:
    """Return the offset for places, one of each range; None: it was not begun."""
    return {"ranges": _mark(ranges)} | {
        str(number): _spelt(place) for number, place in enumerate(places) if place is not None
    }


def places_of(offset: Mapping[str, Any], ranges: Sequence[Bounds]) -> list[Place | None]:
    """Return the places of ranges.

    Raises:
        CheckpointError: The offset is of other ranges.
    """
    if not offset:
        return [None] * len(ranges)
    if "revision" in offset and len(ranges) == 1:
        # Of a version that read one range, and whose offset did not say which.
        return [_read(offset)]
    if offset.get("ranges") != _mark(ranges):
        raise CheckpointError(len(ranges))
    return [_read(offset[str(number)]) if str(number) in offset else None for number in range(len(ranges))]


def _mark(ranges: Sequence[Bounds]) -> str:
    return f"{crc32(repr(list(ranges)).encode()):08x}"


def _spelt(place: Place) -> dict[str, Any]:
    said: dict[str, Any] = {"server_id": place.server_id, "revision": place.revision}
    if place.key is not None:
        said["key"] = place.key.hex()
    if place.taken:
        said["taken"] = place.taken
    if place.begun > 1:
        said["begun"] = place.begun
    return said


def _read(said: Mapping[str, Any]) -> Place:
    key = said.get("key")
    return Place(
        said["server_id"],
        said["revision"],
        None if key is None else bytes.fromhex(key),
        said.get("taken", 0),
        said.get("begun", 1),
    )
