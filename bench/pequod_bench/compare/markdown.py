"""The comparison as Markdown."""

from __future__ import annotations

from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.tables import Table, tables, verdicts


def to_markdown(comparison: Comparison) -> str:
    """Return the whole report."""
    lines = [
        "# Pequod beside other systems",
        "",
        f"    {comparison.command}",
        "",
        comparison.where(),
        "",
    ]
    lines += [f"Skipped: {name}: {reason}.\n" for name, reason in comparison.skipped.items()]
    lines += [f"WRONG: {difference}\n" for difference in comparison.differences()]
    for table in tables(comparison):
        lines += [f"## {table.title}", "", table_text(table), "", table.note, ""]
    lines += ["## Where Pequod wins and loses", "", *(f"- {sentence}" for sentence in verdicts(comparison)), ""]
    if comparison.twip:
        lines += ["## Systems and what was done for them", ""]
        lines += [f"- **{result.title}** ({result.version}). {result.tuning}" for result in comparison.twip]
    return "\n".join(lines).rstrip() + "\n"


def table_text(table: Table) -> str:
    """Return a table in Markdown."""
    rule = ["---", *("---:" for _ in table.columns[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.columns, rule, *table.rows))
