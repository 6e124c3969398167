"""What `make test` leaves to `make test-long`: more seeds, stores and kinds of what its quicker tests hold as well.

A test that is asked for by its file or its id runs, whatever stands here.
"""

from __future__ import annotations

from typing import Final

import pytest

#: Ids of tests, without those of a parameter all of its cases.
LEFT_OUT: Final[tuple[str, ...]] = (
    # A minute a victim: each of twelve kills waits for a lease, or for a leader.
    "tests/cluster/test_moves_steps.py::test_what_is_killed_at_a_step_comes_back_and_nothing_is_lost",
)


def add_options(parser: pytest.Parser) -> None:
    """Add the two choices of the Makefile."""
    group = parser.getgroup("pequod")
    group.addoption("--short", action="store_true", help="leave out the tests that tests/left_out.py lists")
    group.addoption("--long", action="store_true", help="run only the tests that tests/left_out.py lists")


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take from `items` what the options leave out.

    Raises:
        pytest.UsageError: A listed id is that of no test.
    """
    short, long = config.getoption("short"), config.getoption("long")
    if not short and not long:
        return
    listed = [item for item in items if _is_left_out(item.nodeid)]
    found = {name for item in listed for name in (item.nodeid, item.nodeid.partition("[")[0])}
    if unknown := [name for name in LEFT_OUT if name not in found]:
        raise pytest.UsageError(f"tests/left_out.py lists what is no test: {', '.join(unknown)}")
    out = [item for item in items if _is_left_out(item.nodeid) is short]
    items[:] = [item for item in items if _is_left_out(item.nodeid) is not short]
    config.hook.pytest_deselected(items=out)


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.partition("[")[0] in LEFT_OUT
