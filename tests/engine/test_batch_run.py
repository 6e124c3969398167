"""Commands of a batch that are short of memory: scans upwards give fewer rows at a time, others are refused."""

from __future__ import annotations

from pequod.commands.kinds import GET, SCAN, SCAN_DOWN, SCAN_TRIES_MAX
from pequod.engine.batch import BatchRun


def test_a_scan_upwards_that_is_short_of_memory_gives_ever_fewer_rows_until_it_is_refused() -> None:
    kinds, arguments = bytes([SCAN, SCAN_DOWN, GET]), [b"a|", b"a}", b"a|", b"a}", b"a|1"]
    run = BatchRun(kinds, arguments, [3], rows_max=1000)
    tried = [run.rows_max]
    while run.shrink():
        tried.append(run.rows_max)
    counts = list(dict.fromkeys(tried))
    assert counts == sorted(counts, reverse=True)
    assert (counts[0], counts[-1]) == (1000, 1)
    assert all(tried.count(count) == 2 for count in counts[:-1]), "once more with as many"
    assert tried.count(1) == 1 + SCAN_TRIES_MAX
    # What begins at its end, or gives one row, is refused at once, and so is a scan that is to give all of its rows.
    for _ in range(2):
        run.advance()
        assert not run.shrink()
    assert not BatchRun(kinds, arguments, [3]).shrink()
