"""How it was measured, in sentences for the report."""

from __future__ import annotations

from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.system import BATCH, WINDOW


def method(comparison: Comparison) -> list[str]:
    """Say what every reader of the figures should know."""
    pinned = (
        "The client runs on the first core and servers whose work one thread does on the others; PostgreSQL, several "
        "processes, is left to the scheduler."
        if comparison.is_pinned
        else "Nothing is pinned to a core (`--pin` does that)."
    )
    minutes = ", ".join(f"{section} {seconds / 60:.1f}" for section, seconds in comparison.section_seconds.items())
    return [
        (
            "Every run starts a fresh server on the loopback, with its files in a temporary directory (in memory, where"
            " there is room), and one client process in Python, on uvloop where that is installed. A small run warms "
            "server, connection and client up, and is removed; then data are loaded; then the clock starts."
        ),
        (
            f"All systems get the same operations from one seed, {BATCH} of them share a message, and {WINDOW} messages"
            " are under way at once. What each holds at the end must equal a computation from scratch."
        ),
        (
            "Repetitions are interleaved: all systems once, then all again, so that what slows the machine for a while "
            "slows all of them. Tables give the median, and the range in brackets; ratios are between runs side by "
            "side."
        ),
        (
            "CPU is that of all the server's processes and of the client's one, for the timed part alone; memory is the"
            " proportional set size of the server's processes at the end of it."
        ),
        (
            "Latencies are of an open loop: operations start by the clock, count from the moment at which they were to "
            "start, and go into an HDR histogram (three digits, a microsecond to an hour)."
        ),
        pinned,
        f"Minutes by section: {minutes or 'none'}.",
    ]
