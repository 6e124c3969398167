"""Fuzz what reads bytes of others with atheris, for a bounded time each: `make fuzz`.

    python tests/fuzz/fuzz_decoders.py tokens --seconds 60

    tokens      a token, as bytes and as text
    maps        the map of a cluster, as TOML and as a message
    pgoutput    the messages of PostgreSQL's replication
    snapshots   the file of a snapshot, whole and inside its compression

Whatever the bytes, a reader gives what, written again, it reads as the same, or the error that its docstring names.
"""

from __future__ import annotations

import argparse
import gzip
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import atheris

with atheris.instrument_imports(
    include=[
        "pequod.freshness",
        "pequod.cluster",
        "pequod.escapes",
        "pequod_server.backing.postgres.pgoutput",
        "pequod_server.snapshots.files",
    ]
):
    from google.protobuf.message import DecodeError
    from pequod_proto import pequod_pb2 as pb
    from pequod_server.backing.postgres import pgoutput
    from pequod_server.snapshots.files import read_snapshot

    from pequod.cluster.document import TEMPLATE, read, written
    from pequod.cluster.messages import map_of, message_of_map
    from pequod.errors import ClusterMapError, InvalidTokenError, SnapshotError
    from pequod.freshness import Token

#: What a map is made of, as far as its lines go.
_LINES: Final = (
    *(f"{line}\n" for line in TEMPLATE.splitlines()),
    *('last = "p|"\n', 'moves_to = "b"\n', "level = 1\n", "read_spread = 3\n", "[[placements]]\n", 'prefix = "t|"\n'),
    *(
        "weight = 0.5\n",
        'zone = "z"\n',
        'state = "draining"\n',
        'roles = ["home"]\n',
        "move = 7\n",
        'copies_to = "b"\n',
    ),
)


def tokens(data: bytes) -> None:
    """Read a token; what is one is written as it was."""
    try:
        token = Token.parse(data)
    except InvalidTokenError:
        pass
    else:
        assert bytes(token) == data
        assert Token.parse(str(token)) == token
        assert token.merged(token) == token
        assert token.has(token)
    try:
        text = "pq1." + data.decode("latin-1")
        assert str(Token.parse(text)) == text
    except InvalidTokenError:
        pass


def maps(data: bytes) -> None:
    """Read a map, as a text that is nearly one, and as a message."""
    provider = atheris.FuzzedDataProvider(data)
    pieces = list[str]()
    for _ in range(provider.ConsumeIntInRange(0, 30)):
        if provider.ConsumeIntInRange(0, 4):
            pieces.append(_LINES[provider.ConsumeIntInRange(0, len(_LINES) - 1)])
        else:
            pieces.append(provider.ConsumeUnicodeNoSurrogates(6))
    try:
        state = read("".join(pieces))
    except ClusterMapError:
        pass
    else:
        assert read(written(state)) == state
    try:
        known = map_of(pb.ClusterMap.FromString(data))
    except (ClusterMapError, DecodeError):
        return
    assert map_of(message_of_map(known)) == known


def messages_of_postgres(data: bytes) -> None:
    """Read a message of the plugin, as one of a row and as another: one that is cut off has no other error."""
    try:
        if data[:1] and data[0] in pgoutput.ROWS:
            pgoutput.table_of(data)
            pgoutput.read_columns(data, pgoutput.ROW_AT, 3)
        else:
            pgoutput.parse_message(data)
    except (struct.error, ValueError, IndexError):
        pass


def snapshots_in(folder: Path) -> Callable[[bytes], None]:
    """Return what reads a file of bytes, and of blocks made of bytes: as snapshots, or with their error."""
    path = folder / "snapshot"

    def look() -> None:
        try:
            content = read_snapshot(path)
        except SnapshotError:
            return
        assert len(content.rows.keys) == len(content.rows.values)

    def snapshots(data: bytes) -> None:
        path.write_bytes(data)
        look()
        provider = atheris.FuzzedDataProvider(data)
        head = pb.SnapshotHead(format="pequod snapshot", version=provider.ConsumeIntInRange(0, 4))
        if provider.ConsumeBool():
            head.backing.add(
                name="a",
                firsts=[provider.ConsumeBytes(2) for _ in range(provider.ConsumeIntInRange(0, 2))],
                lasts=[provider.ConsumeBytes(2) for _ in range(provider.ConsumeIntInRange(0, 2))],
            )
        keys = [provider.ConsumeBytes(3) for _ in range(provider.ConsumeIntInRange(0, 3))]
        block = pb.SnapshotBlock(keys=keys, values=keys[: provider.ConsumeIntInRange(0, 3)])
        block.deadlines.extend(range(provider.ConsumeIntInRange(0, 3)))
        end = pb.SnapshotBlock(end=pb.SnapshotEnd(keys=provider.ConsumeIntInRange(0, 4)))
        blocks = [one.SerializeToString() for one in (pb.SnapshotBlock(head=head), block, end)]
        whole = b"".join(struct.pack(">I", len(one)) + one for one in blocks)
        rest = provider.ConsumeBytes(1 << 10)
        path.write_bytes(gzip.compress(whole[: len(whole) - provider.ConsumeIntInRange(0, 9)] + rest, 0))
        look()

    return snapshots


def main() -> None:
    """Fuzz for some seconds; ends with an error at the first finding."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=["tokens", "maps", "pgoutput", "snapshots"])
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        targets = {
            "tokens": tokens,
            "maps": maps,
            "pgoutput": messages_of_postgres,
            "snapshots": snapshots_in(Path(folder)),
        }
        atheris.Setup([sys.argv[0], f"-max_total_time={options.seconds}", "-max_len=512"], targets[options.target])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
