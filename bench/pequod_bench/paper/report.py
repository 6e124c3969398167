"""The comparison as files: a page, Markdown, JSON, and the figures in a Markdown file of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from rich.console import Console

from pequod.errors import SettingError
from pequod_bench.paper.comparison import Comparison, goals
from pequod_bench.paper.tables import tables
from pequod_bench.report.printed import Printed, table_text
from pequod_bench.systems.system import BATCH, WINDOW

#: The two lines between which figures go.
BEGIN: Final = "<!-- compare: figures -->"
END: Final = "<!-- compare: end -->"
_HEAD: Final = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pequod beside other systems</title><style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em } li { margin: .4em 0 }
table { border-collapse: collapse; font-size: .85em; margin: 1em 0; display: block; overflow-x: auto }
th, td { padding: .3em .6em; border-bottom: 1px solid #ddd; vertical-align: top }
th:first-child, td:first-child { min-width: 9em }
svg { max-width: 100%; height: auto } code { background: #f3f3f3; padding: .1em .3em }
@media print { body { font-size: 11px; max-width: none; margin: 0 } table { font-size: 9px } }
</style></head><body>
"""


_METHOD: Final = f"""\
Every run starts a fresh server on the loopback, with its files in a temporary directory (in memory, where there is \
room), and one client process in Python, on uvloop where that is installed. A small run warms server, connection and \
client up, and is removed; then data are loaded; then the clock starts.
All systems get the same operations from one seed, {BATCH} of them share a message, and {WINDOW} messages are under \
way at once. What each holds at the end must equal a computation from scratch.
Repetitions are interleaved: all systems once, then all again, so that what slows the machine for a while slows all of \
them. Tables give the median, and the range in brackets; ratios are between runs side by side.
CPU is that of all the server's processes and of the client's one, for the timed part alone; memory is the \
proportional set size of the server's processes at the end of it.
Latencies are of an open loop: operations start by the clock, count from the moment at which they were to start, and \
go into an HDR histogram (three digits, a microsecond to an hour).
Nothing is pinned to a core.""".splitlines()


@dataclass(frozen=True, slots=True)
class Compared(Printed):
    """The comparison as a report of one command."""

    comparison: Comparison

    def fault(self) -> str:
        return next(iter(self.comparison.differences()), "")

    def unmeasured(self) -> str:
        return "not everything could be measured; the report says what" if self.comparison.failures else ""

    def to_json(self) -> str:
        return self.comparison.to_json()

    def print_table(self, console: Console) -> None:
        # Lines of Markdown are not wrapped.
        print(to_markdown(self.comparison), file=console.file)


def write_report(comparison: Comparison, folder: Path) -> None:
    """Write compare.html, compare.md and compare.json, over those that are there."""
    for name, text in (("json", comparison.to_json()), ("md", to_markdown(comparison)), ("html", to_html(comparison))):
        (folder / f"compare.{name}").write_text(text, "utf-8")


def to_markdown(comparison: Comparison, mark: str = "") -> str:
    """Return the whole report; below each table that can be drawn stands the mark, if there is one."""
    return "\n".join(_lines(comparison, mark)).rstrip() + "\n"


def to_html(comparison: Comparison) -> str:
    """Return the whole report, with figures, as one file that needs no other."""
    mark = "(figure)"
    body: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(to_markdown(comparison, mark))
    for table in tables(comparison):
        if table.draw is not None:
            body = body.replace(f"<p>{mark}</p>", table.draw(), 1)
    return f"{_HEAD}{body}</body></html>\n"


def _lines(comparison: Comparison, mark: str) -> Iterator[str]:
    yield from ("# Pequod beside other systems", "", f"    {comparison.command}", "", comparison.where(), "")
    yield from (f"Skipped: {name}: {reason}.\n" for name, reason in comparison.skipped.items())
    yield from (f"FAILED: {each.section}: {each.title}: {each.reason}\n" for each in comparison.failures)
    yield from (f"WRONG: {difference}\n" for difference in comparison.differences())
    if goals(comparison):
        yield from ("## Goals", "", goals_text(comparison), "")
    for table in tables(comparison):
        yield from (f"## {table.title}", "", table_text(table.columns, table.rows), "", table.note, "")
        if mark and table.draw is not None:
            yield from (mark, "")
    minutes = ", ".join(f"{section} {seconds / 60:.1f}" for section, seconds in comparison.section_seconds.items())
    yield from ("## Method", "", *(f"- {sentence}" for sentence in _METHOD), f"- Minutes by section: {minutes}.", "")
    if comparison.twip:
        yield from ("## Systems and what was done for them", "")
        yield from (f"- **{result.title}** ({result.version}). {result.tuning}" for result in comparison.twip)


def goals_text(comparison: Comparison) -> str:
    """Return a table of the goals."""
    rows = [[goal.wanted, goal.found, goal.beside, "met" if goal.is_met else "missed"] for goal in goals(comparison)]
    return table_text(["the paper's figure", "found", "and", ""], rows)


def rewrite(file: Path, comparison: Comparison) -> None:
    """Put the report between the marks of a file, in place of what is there, below a heading of the third level."""
    before, after = refuse_unmarked(file)
    _, _, report = to_markdown(comparison).replace("\n## ", "\n#### ").partition("\n\n")
    file.write_text(f"{before}{BEGIN}\n{report}{END}{after}", "utf-8")


def refuse_unmarked(file: Path) -> tuple[str, str]:
    """Return what stands before the first mark and after the second.

    Raises:
        SettingError: It does not have both marks, each once and in their order.
    """
    text = file.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    between, _, after = rest.partition(END)
    if text.count(BEGIN) != 1 or text.count(END) != 1 or END in before or BEGIN in between:
        raise SettingError("--readme", f"{file} must have the two lines {BEGIN} and {END}, in this order")
    return before, after
