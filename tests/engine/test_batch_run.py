"""Commands of a batch that are short of memory: scans upwards give fewer rows at a time, others are refused."""

from __future__ import annotations

from pequod.commands.kinds import GET, SCAN, SCAN_DOWN, SCAN_LIMIT, SCAN_TRIES_MAX
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


def test_a_scan_goes_on_behind_the_last_row_that_it_has_given() -> None:
    run = BatchRun(bytes([SCAN_LIMIT, SCAN_DOWN]), [b"a|", b"a}", b"a|", b"a}"], [5, 5], rows_max=1000)
    run.go_on_behind(2, b"a|2")
    assert (run.arguments[:2], run.numbers[0]) == ([b"a|2\0", b"a}"], 3)
    run.advance()
    run.go_on_behind(2, b"a|4")
    assert (run.arguments[2:], run.numbers[1]) == ([b"a|", b"a|4"], 3)
