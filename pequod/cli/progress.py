"""A progress bar on standard error if a person watches, else nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

#: Called with the bytes of the file that are done, and the number of rows.
Advance = Callable[[int, int], None]

_REFRESHES_PER_S: Final = 4


@contextmanager
def progress_bar(title: str, bytes_max: int | None, unit: str = "rows") -> Iterator[Advance]:
    """Show a bar; yield the function that moves it.

    Args:
        bytes_max: The size of the file; None if it is unknown, then the bar shows only that work goes on.
        unit: What the second number of an advance counts.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _bytes, _rows: None
        return
    columns = [
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn(f"{{task.fields[rows]:,}} {unit}"),
        TimeElapsedColumn(),
        *([] if bytes_max is None else [TimeRemainingColumn()]),
    ]
    with Progress(*columns, console=console, refresh_per_second=_REFRESHES_PER_S, transient=True) as progress:
        task = progress.add_task(title, total=bytes_max, rows=0)
        yield lambda done, rows: progress.update(task, completed=done, rows=rows)
