"""Plain tables: columns as wide as their widest cell, so that output can be read and piped on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; cells take the room that a terminal gives them, 2 cells for a wide character."""
    # Here and not above: it takes 20 ms, and most commands print no table.
    from rich.cells import cell_len

    cells = [columns, *rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())
