"""The comparison as Markdown."""

from __future__ import annotations

from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.goals import goals
from pequod_bench.compare.method import method
from pequod_bench.compare.tables import Table, tables


def to_markdown(comparison: Comparison) -> str:
    """Return the whole report."""
    lines = ["# Pequod beside other systems", "", f"    {comparison.command}", "", comparison.where(), ""]
    lines += [f"Skipped: {name}: {reason}.\n" for name, reason in comparison.skipped.items()]
    lines += [f"FAILED: {each.section}: {each.title}: {each.reason}\n" for each in comparison.failures]
    lines += [f"WRONG: {difference}\n" for difference in comparison.differences()]
    if goals(comparison):
        lines += ["## Goals", "", goals_text(comparison), ""]
    for table in tables(comparison):
        lines += [f"## {table.title}", "", table_text(table), "", table.note, ""]
    lines += ["## Method", "", *(f"- {sentence}" for sentence in method(comparison)), ""]
    if comparison.twip:
        lines += ["## Systems and what was done for them", ""]
        lines += [f"- **{result.title}** ({result.version}). {result.tuning}" for result in comparison.twip]
    return "\n".join(lines).rstrip() + "\n"


def goals_text(comparison: Comparison) -> str:
    """Return a table of the goals."""
    rows = [[goal.wanted, goal.found, goal.beside, "met" if goal.is_met else "missed"] for goal in goals(comparison)]
    return table_text(Table("goals", "Goals", "", ["the paper's figure", "found", "and", ""], rows))


def table_text(table: Table) -> str:
    """Return a table in Markdown."""
    rule = ["---", *("---:" for _ in table.columns[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (table.columns, rule, *table.rows))
