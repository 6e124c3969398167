"""What a stream is told, as Arrow tables, and how a batch is cut into parts for tasks.

key     value      old       revision
p|ann   hello                12          a row
p|ann   hi         hello     15          a change
p|ann              hi        17          the key is gone
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pequod.answers.changes import Change

#: Large: a range may have more than the 2 GiB of a plain column.
SCHEMA: Final = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("old", pa.large_binary()),
        ("revision", pa.int64()),
    ]
)
#: Without a number that the caller names: the rows of a part, and the number of parts.
_PART_ROWS: Final = 10_000
_PARTS: Final = 8
#: A part is a message of Spark's, of which none may have 128 MiB.
PART_BYTES_MAX: Final = 32 << 20


def rows_told(keys: Sequence[bytes], values: Sequence[bytes], revision: int) -> Any:
    """Return rows that were there at a revision."""
    count = len(keys)
    revisions = pa.repeat(pa.scalar(revision, pa.int64()), count)
    kind = pa.large_binary()
    return pa.table(
        [pa.array(keys, kind), pa.array(values, kind), pa.nulls(count, kind), revisions],
        schema=SCHEMA,
    )


def changes_told(events: Iterable[tuple[int, Sequence[Change]]]) -> Any:
    """Return changes, each with the revision of its event."""
    keys, values, olds, revisions = list[bytes](), list[bytes | None](), list[bytes | None](), list[int]()
    for revision, changes in events:
        keys += [change.key for change in changes]
        values += [change.new for change in changes]
        olds += [change.old for change in changes]
        revisions += [revision] * len(changes)
    return pa.table([keys, values, olds, revisions], schema=SCHEMA)


def row_sizes(table: Any) -> Any:
    """Return the bytes of each row's key and values."""
    lengths = [pc.fill_null(pc.binary_length(table[name]), 0) for name in ("key", "value", "old")]
    return pc.add(pc.add(lengths[0], lengths[1]), lengths[2]).to_numpy()


def change_sizes(changes: Sequence[Change]) -> Any:
    """Return the bytes of each change's key and values."""
    return np.fromiter(
        (len(key) + len(old or b"") + len(new or b"") for key, old, new in changes), np.int64, len(changes)
    )


def cut(table: Any, count: int | None) -> Iterator[Any]:
    """Cut a batch into parts, none of them empty; all rows of a key are in one part, in their order.

    Args:
        count: The number of parts, if there are as many keys and no part is too large; None: as few as make sense.

    Cost:
        O(n log n).
    """
    if not len(table):
        return
    wanted = min(_PARTS, -(-len(table) // _PART_ROWS)) if count is None else count
    wanted = max(wanted, -(-int(row_sizes(table).sum()) // PART_BYTES_MAX))
    if wanted == 1:
        yield table
        return
    order = pc.sort_indices(table["key"]).to_numpy()
    keys = table["key"].take(pa.array(order))
    is_first = np.concatenate([[True], pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy()])
    starts = np.flatnonzero(is_first)
    edges = np.searchsorted(starts, [len(table) * number // wanted for number in range(1, wanted)])
    inner = starts[edges[edges < len(starts)]].tolist()
    places = sorted({0, *inner, len(table)})
    for first, last in pairwise(places):
        # The rows of a key stay in their order, and so do those of all keys.
        yield table.take(pa.array(np.sort(order[first:last])))


def packed(table: Any) -> bytes:
    """Return a part as bytes, for a task."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def unpacked(content: bytes) -> Iterator[dict[str, Any]]:
    """Yield the columns of a part, some thousand rows at a time."""
    with pa.ipc.open_stream(content) as reader:
        table = reader.read_all()
    for batch in table.to_batches(max_chunksize=_PART_ROWS):
        plain = {"key": pa.binary(), "value": pa.binary(), "old": pa.binary(), "revision": pa.int64()}
        yield {name: batch.column(name).cast(kind) for name, kind in plain.items()}
