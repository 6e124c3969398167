"""How costs grow with the size of what is kept: the same operations in engines of many sizes.

Each point is measured in its own process, one after the other, so that memory is clean. As a picture there is one
panel for each figure, and one line for each number of entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from pequod_installed.names import how_to_install
from rich.console import Console
from rich.table import Table

from pequod.errors import PequodError
from pequod_bench.report.printed import Printed, print_figures
from pequod_bench.report.progress import ProgressBars
from pequod_bench.scale_point import ScaleError, ScalePoint, ScaleSize, measure

#: (attribute of a point, what it is called)
_PANELS: Final = (
    ("check_us", "check of 3 rows, µs"),
    ("first_check_row_us", "first check, µs a row"),
    ("fan_out_entry_us", "fan-out, µs an entry"),
    ("check_after_subscribe_us", "check after subscribe, µs"),
    ("bytes_per_entry", "bytes an entry, beside tweet and timeline"),
    ("pause_ms_max", "longest collector pause, ms"),
)


class NoPlotterError(PequodError):
    """Matplotlib is not installed."""


@dataclass(frozen=True, slots=True)
class ScaleReport(Printed):
    """All points."""

    points: list[ScalePoint]

    def print_table(self, console: Console) -> None:
        """Print it for a person."""
        table = Table("users", box=None, pad_edge=False, collapse_padding=True)
        figures = ("entries", "check", "first", "fan-out", "log", "B/entry", "B/timeline", "pause", "memory")
        rows = [
            (
                f"{point.users:,}",
                f"{point.entries:,}",
                f"{point.check_us:.2f}",
                f"{point.first_check_row_us:.2f}",
                f"{point.fan_out_entry_us:.2f}",
                f"{point.check_after_subscribe_us:.1f}",
                f"{point.bytes_per_entry:.0f}",
                f"{point.bytes_per_timeline:,.0f}",
                f"{point.pause_ms_max:.1f}",
                f"{point.rss_mib:,.0f}",
            )
            for point in self.points
        ]
        print_figures(console, table, figures, rows)
        console.print(
            "[dim]µs of CPU for a check of three rows, a row of a first check, an entry of a fan-out, a check with a "
            "subscription in its log; bytes beside the tweets; the collector's longest pause in ms; the process in "
            "MiB[/]"
        )


def measure_all(sizes: Sequence[ScaleSize], bars: ProgressBars) -> ScaleReport:
    """Measure each size in a fresh process.

    Raises:
        ScaleError: A size cannot be made, or its process ended.
        WrongTimelineError: A timeline is not what its definition says.
    """
    for size in sizes:
        size.require()
    points = []
    with bars.bar("measuring", len(sizes)) as advance:
        for size in sizes:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
                try:
                    points.append(fresh.submit(measure, size).result())
                except BrokenProcessPool as error:
                    raise ScaleError(
                        f"the process with {size.users:,} users and {size.entries:,} entries was ended from outside; "
                        "if memory ran out, take fewer entries"
                    ) from error
            advance(1)
    return ScaleReport(points)


def require_plotter() -> None:
    """Refuse before anything is measured if there will be nothing to draw with.

    Raises:
        NoPlotterError: Matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise NoPlotterError(f"drawing needs matplotlib: {how_to_install('bench')}; or leave out --out")


def draw(points: Sequence[ScalePoint], path: Path) -> None:
    """Draw all points into an SVG file; the same points make the same file."""
    import matplotlib as mpl  # noqa: PLC0415 -- optional, and slow to import
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context({"svg.hashsalt": "pequod", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(11, 6), layout="constrained")
        for axes, (attribute, title) in zip(figure.subplots(2, 3).flat, _PANELS, strict=True):
            for entries in sorted({point.entries for point in points}):
                line = sorted((point for point in points if point.entries == entries), key=lambda point: point.users)
                axes.plot(
                    [point.users for point in line],
                    [getattr(point, attribute) for point in line],
                    marker="o",
                    label=f"{entries:,} entries",
                )
            axes.set_title(title, loc="left")
            axes.set_xscale("log")
            axes.set_xlabel("users")
            axes.set_ylim(0, 1.15 * max(getattr(point, attribute) for point in points) or 1)
            axes.grid(alpha=0.3)
        figure.axes[0].legend()
        figure.savefig(path, format="svg", metadata={"Date": None})
