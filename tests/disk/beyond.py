"""A server whose folder has several times more base data than its limit of memory, under Zipf reads.

python -m tests.disk.beyond --seconds 60 --limit-mib 256 --times 4
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from pequod_bench.store.beyond import pressed, rows_for
from pequod_bench.store.filled import fill


def main() -> None:
    """Press a server, and say what was seen."""
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--limit-mib", type=int, default=256)
    options.add_argument("--times", type=float, default=4.0)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    row_count = rows_for(chosen.limit_mib, chosen.times)
    with TemporaryDirectory() as scratch:
        fill(Path(scratch) / "data", row_count)
        seen = pressed(Path(scratch) / "data", row_count, chosen.seconds, chosen.limit_mib, chosen.seed)
    share = seen.resident_bytes / (chosen.limit_mib << 20)
    print(
        f"{seen.row_count} rows, answering after {seen.answered_s:.2f} s; {seen.reads} rows read and {seen.writes} "
        f"written in {chosen.seconds:g} s, all exact; at most {share:.0%} of {chosen.limit_mib} MiB resident"
    )
    assert share <= 1.1, "the limit of memory bounds the process"


if __name__ == "__main__":
    main()
