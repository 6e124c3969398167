"""Tables that reports print: a format for each column, nothing where a figure is missing."""

from __future__ import annotations

import io

from pequod_bench.report.printed import print_rows
from rich.console import Console


def printed(columns: dict[str, str], rows: list[object], **options: object) -> list[str]:
    text = io.StringIO()
    print_rows(Console(file=text, width=80), rows, columns, **options)  # type: ignore[arg-type]
    return [line.rstrip() for line in text.getvalue().splitlines() if line.strip()]


def test_a_missing_figure_shows_as_nothing() -> None:
    columns = {"what": "{0[0]}", "ms": "{0[1]:.1f}", "rows": "{0[2]:,}"}
    head, one, other = printed(columns, [("gets", 1.25, 1_000), ("puts", None, 2)])
    assert (head.split(), one.split(), other.split()) == (
        ["what", "ms", "rows"],
        ["gets", "1.2", "1,000"],
        ["puts", "2"],
    )
    assert other.index("2") == one.index("1,000") + 4, "figures stand at the right"


def test_a_table_without_names_has_a_title_and_no_head() -> None:
    assert printed({"": "{0[0]}", " ": "{0[1]}"}, [("users", "2")], title="twip", left=2) == ["twip", "users  2"]
