"""A micro benchmark of the feed of PostgreSQL: rows of a large commit, from the bytes that come."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Final, cast

from pequod_server.backing import parse_mappings
from pequod_server.backing.postgres.decoder import Decoder
from pequod_server.backing.postgres.lookout import Lookout
from pequod_server.backing.postgres.schema import ColumnFacts, TableFacts
from pequod_server.backing.postgres.session import PostgresSession, SnapshotHorizon
from pequod_server.backing.values import Kind
from pequod_server.database.intake import Intake

from pequod.engine import Engine
from pequod_bench.micro.frame import MicroRows, MicroScale, Samples, clock

_MAPPINGS: Final = parse_mappings("""
[[mapping]]
keys = "p|<poster>|<time:10>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"
""")
_KINDS: Final[dict[str, tuple[str, Kind]]] = {
    "poster": ("text", "text"),
    "at": ("int8", "number"),
    "body": ("text", "text"),
    "hidden": ("bool", "boolean"),
}
FEED: Final = MicroRows()
_OID: Final = 7
#: Loaded ranges, none of them of the rows that come.
_RANGES: Final = 1_000
_RUN: Final = 256


class _EverythingSeen(Lookout):
    """Tells that reads see every commit."""

    @property
    def seen(self) -> SnapshotHorizon:
        """What every read sees."""
        return SnapshotHorizon(0, 1_000, 1_000, frozenset())


def _relation() -> bytes:
    columns = b"".join(b"%c%b\0" % (number < 2, name.encode()) + bytes(8) for number, name in enumerate(_KINDS))
    return b"R" + struct.pack(">I", _OID) + b"public\0posts\0d" + struct.pack(">h", len(_KINDS)) + columns


def _row(number: int) -> bytes:
    cells = [b"u%d" % (number % _RANGES), b"%d" % number, b"v" * 100, b"f"]
    row = b"".join(b"t" + struct.pack(">i", len(cell)) + cell for cell in cells)
    return b"I" + struct.pack(">I", _OID) + b"N" + struct.pack(">h", len(cells)) + row


@FEED.row("feed, dropped", "a row of a commit, not loaded")
def drop_rows(scale: MicroScale) -> Samples:
    """Take in rows of four columns in ranges that are not loaded."""
    engine = Engine(backed=[b"p"])
    for number in range(scale.of(_RANGES)):
        engine.load(b"p|l%d|" % number, b"p|l%d}" % number, [])
    session = PostgresSession(
        "postgresql:///", _MAPPINGS, "slot", "pequod", connections_max=1, timeout_s=1.0, held_bytes_max=1 << 20
    )
    columns = {name: ColumnFacts(kind, shown, is_bytewise=True, version="") for name, (kind, shown) in _KINDS.items()}
    facts = {"posts": TableFacts(_OID, "public", columns, frozenset(["poster", "at"]), (), frozenset())}
    # Nothing is asked over the connection.
    lookout = _EverythingSeen(session, cast("Any", None), "", 0, lambda: None)
    decoder = Decoder(session, facts, lookout, 0, Intake(engine).is_wanted)
    asyncio.run(decoder.events(b"B" + struct.pack(">qqI", 1, 0, 5)))
    asyncio.run(decoder.events(_relation()))
    rows = [_row(number) for number in range(_RUN)]
    note = decoder.note
    while True:
        start = clock()
        for row in rows:
            note(row)
        yield _RUN, clock() - start
