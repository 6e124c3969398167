"""Reads of plain rows: those that a source with records sees, from its index or from the table's own rows."""

from __future__ import annotations

from collections.abc import Callable

from pequod.answers.rows import Rows
from pequod.engine.joins.indexes import Index

#: (prefix, first, last) -> the table's rows that start with the prefix and continue in ``[first, last)``.
ReadOwn = Callable[[bytes, bytes, bytes | None], Rows]


def read_indexed(index: Index, prefix: bytes, first: bytes, last: bytes | None, read_number: int) -> Rows | None:
    """Return the plain rows from the index, which is made if need be; None if the table's own rows serve as well.

    They do if all rows are wanted and there is no index, or if there is no memory for it.

    Requires:
        All the table's rows of the source's range are there, and no join computes others.
    """
    if index.rows is None and prefix == index.table.prefix and not first and last is None:
        return None
    rows = index.rows or index.build()
    index.use(read_number)
    return None if rows is None else rows.slice_within(prefix, first, last)


def read_shown(index: Index, prefix: bytes, first: bytes, last: bytes | None, read: ReadOwn) -> Rows:
    """Return the plain rows that start with ``prefix`` and continue in ``[first, last)``, from the table's own rows.

    Of the table's rows, those are read whose keys begin with the prefix, or with the part of it that own keys have.
    """
    lens = index.lens
    start, stop = index.range
    match = None if lens.view.is_indexed else lens.begins_with_own(prefix)
    if lens.view.is_indexed:
        own = read(b"", start, stop)
    elif match is not None:
        own = read(match.group(), b"", b"\0")
    else:
        # An own key sorts before its plain keys, and is a prefix of them.
        own = read(prefix, first if lens.is_own else b"", last)
    shown = index.show(own)
    if lens.is_optional and not shown.keys:
        assert match is not None, "all slots of its own keys are known"
        absent = lens.absent(match.group())
        shown = Rows([*absent], [*absent.values()])
    lowest, highest = prefix + first, None if last is None else prefix + last
    keys = shown.keys
    if not keys or (keys[0] >= lowest and keys[0].startswith(prefix) and _ends_within(keys[-1], prefix, highest)):
        return shown
    within = [
        (key, value)
        for key, value in zip(keys, shown.values, strict=True)
        if lowest <= key and key.startswith(prefix) and (highest is None or key < highest)
    ]
    return Rows([key for key, _ in within], [value for _, value in within])


def _ends_within(key: bytes, prefix: bytes, highest: bytes | None) -> bool:
    return key.startswith(prefix) and (highest is None or key < highest)
