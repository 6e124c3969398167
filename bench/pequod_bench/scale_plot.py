"""The scale benchmark as a picture: one panel for each figure, one line for each number of entries."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pequod.errors import PequodError
from pequod_bench.scale_point import Point

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


def require_plotter() -> None:
    """Refuse before anything is measured if there will be nothing to draw with.

    Raises:
        NoPlotterError: Matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise NoPlotterError("drawing needs matplotlib: pip install 'pequod[bench]', or leave out --out")


def draw(points: Sequence[Point], path: Path) -> None:
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
