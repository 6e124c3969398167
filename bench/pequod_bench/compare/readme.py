"""The figures of a comparison in a Markdown file of ours, between two marks, so that nobody types them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pequod.errors import PequodError
from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.markdown import goals_text, table_text
from pequod_bench.compare.tables import tables

BEGIN: Final = "<!-- compare: figures -->"
END: Final = "<!-- compare: end -->"


class UnmarkedError(PequodError):
    """A file does not say where the figures go."""


def figures_text(comparison: Comparison) -> str:
    """Return goals and tables, each under a heading of the fourth level."""
    lines = [f"`{comparison.command}`", "", comparison.where(), ""]
    lines += ["#### Goals", "", goals_text(comparison), ""]
    for table in tables(comparison):
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
