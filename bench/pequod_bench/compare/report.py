"""The comparison as files: a page, Markdown, JSON, and the figures in a Markdown file of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pequod.errors import PequodError
from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.goals import goals
from pequod_bench.compare.method import method
from pequod_bench.compare.page import to_html
from pequod_bench.compare.tables import Table, tables

#: The two lines between which figures go.
BEGIN: Final = "<!-- compare: figures -->"
END: Final = "<!-- compare: end -->"
#: Whose first tables go there; the report has all.
_SECTIONS: Final = ("7", "8", "9", "ycsb")


class UnmarkedError(PequodError):
    """A file does not say where the figures go."""


def write_report(comparison: Comparison, folder: Path) -> None:
    """Write compare.html, compare.md and compare.json, over those that are there."""
    texts = {
        "compare.json": comparison.to_json(),
        "compare.md": to_markdown(comparison),
        "compare.html": to_html(comparison),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, "utf-8")


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


def figures_text(comparison: Comparison) -> str:
    """Return goals and the first table of some sections, each under a heading of the fourth level."""
    lines = [f"`{comparison.command}`", "", comparison.where(), ""]
    lines += ["#### Goals", "", goals_text(comparison), ""]
    shown = {table.section: table for table in reversed(tables(comparison))}
    for section in _SECTIONS:
        if section in shown:
            table = shown[section]
            lines += [f"#### {table.title}", "", table_text(table), "", table.note, ""]
    return "\n".join(lines).rstrip()


def rewrite(file: Path, comparison: Comparison) -> None:
    """Put the figures between the marks of a file, in place of what stands there.

    Raises:
        UnmarkedError: It does not have both marks, each once and in their order.
    """
    before, after = refuse_unmarked(file)
    file.write_text(f"{before}{BEGIN}\n{figures_text(comparison)}\n{END}{after}", "utf-8")


def refuse_unmarked(file: Path) -> tuple[str, str]:
    """Return what stands before the first mark and after the second.

    Raises:
        UnmarkedError: It does not have both marks, each once and in their order.
    """
    text = file.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    between, _, after = rest.partition(END)
    if text.count(BEGIN) != 1 or text.count(END) != 1 or END in before or BEGIN in between:
        raise UnmarkedError(f"{file} must have the two lines {BEGIN} and {END}, in this order: figures go between them")
    return before, after
