"""Some thousand calls of all kinds at a server; `make soak-calls` makes millions, and looks at its memory."""

import pytest

from tests.soak.calls import Calls, Report, soak


def test_no_call_of_many_fails_or_reads_what_is_wrong() -> None:
    report = soak(3_000)
    assert report.wrong == []
    assert report.samples[-1][1] == 3_000
    assert len(report.samples) == 15
    assert {"Get", "Put", "Scan", "MultiPut", "AsyncClient.get", "AsyncClient.timeline", "Client"} <= set(report.kinds)


def test_a_value_of_another_key_is_told() -> None:
    report = Report([(0.0, 0, 100)] * 8)
    calls = Calls(1, report)
    for value in (b"", None, calls.value(b"x|1")):
        calls.look(b"x|1", value)
    assert report.faults == []
    calls.look(b"x|1", b"x|2")
    assert report.faults == ["b'x|1' has b'x|2'"]


@pytest.mark.parametrize(("last", "faults"), [(102, []), (104, ["the server has grown by 4.0%"])])
def test_growth_is_that_of_the_last_quarter_against_the_second(last: int, faults: list[str]) -> None:
    sizes = [50] * 4 + [100] * 4 + [120] * 4 + [last - 1, last + 1] * 2
    assert Report([(0.0, 0, size) for size in sizes]).faults == faults
