"""Plain tables: columns as wide as their widest cell, so that output can be read by people and piped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; the width of a cell is that on a terminal, 2 columns for a wide character."""
    # Imported here: it takes 20 ms, and most commands print no table.
    from rich.cells import cell_len

    cells = [columns, *rows]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
        print("  ".join(padded).rstrip())
