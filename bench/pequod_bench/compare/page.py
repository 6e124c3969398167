"""The comparison as one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.goals import goals
from pequod_bench.compare.method import method
from pequod_bench.compare.plots import figures
from pequod_bench.compare.tables import Table, tables

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }
table { border-collapse: collapse; font-size: .85em; margin: 1em 0 }
th, td { padding: .3em .6em; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top }
th:first-child, td:first-child { text-align: left; min-width: 9em }
svg { max-width: 100%; height: auto }
code { background: #f3f3f3; padding: .1em .3em } .note { color: #555; font-size: .9em }
.wrong { color: #b00 } .met { color: #276b2c }
.scroll { overflow-x: auto } section { break-inside: avoid }
li { margin: .4em 0 }
@media print { body { font-size: 11px; max-width: none; margin: 0 } .scroll { overflow: visible }
  table { font-size: 9px } tr { break-inside: avoid } h2 { break-after: avoid } }
"""


def to_html(comparison: Comparison) -> str:
    """Return the whole report."""
    skipped = [f"<p>Skipped: {escape(name)}: {escape(why)}.</p>" for name, why in comparison.skipped.items()]
    wrong = [
        f'<p class="wrong">FAILED: {escape(f"{each.section}: {each.title}: {each.reason}")}</p>'
        for each in comparison.failures
    ]
    wrong += [f'<p class="wrong">WRONG: {escape(what)}</p>' for what in comparison.differences()]
    systems = [
        f"<b>{escape(result.title)}</b> ({escape(result.version)}). {escape(result.tuning)}"
        for result in comparison.twip
    ]
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Pequod beside other systems</title><style>{_STYLE}</style></head><body>",
            f"<h1>Pequod beside other systems</h1><p><code>{escape(comparison.command)}</code></p>",
            f'<p class="note">{escape(comparison.where())}</p>',
            *skipped,
            *wrong,
            _goals(comparison),
            *_sections(comparison),
            _list("Method", [escape(sentence) for sentence in method(comparison)]),
            _list("Systems and what was done for them", systems),
            "</body></html>\n",
        ]
    )


def _sections(comparison: Comparison) -> Iterator[str]:
    """Yield each table, and after the first of a section its figure."""
    drawn = figures(comparison)
    for table in tables(comparison):
        yield f"<section>{_table(table)}{drawn.pop(table.section, '')}</section>"


def _goals(comparison: Comparison) -> str:
    held = goals(comparison)
    if not held:
        return ""
    rows = "".join(
        f"<tr><td>{escape(goal.wanted)}</td><td>{escape(goal.found)}</td><td>{escape(goal.beside)}</td>"
        f'<td class="{"met" if goal.is_met else "wrong"}">{"met" if goal.is_met else "missed"}</td></tr>'
        for goal in held
    )
    return (
        '<h2>Goals</h2><div class="scroll"><table>'
        f"<tr><th>the paper's figure</th><th>found</th><th>and</th><th></th></tr>{rows}</table></div>"
    )


def _list(title: str, items: list[str]) -> str:
    """Return a list of HTML items under a heading, nothing if there are none."""
    return f"<h2>{escape(title)}</h2><ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>" if items else ""


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
        f'<p class="note">{escape(table.note)}</p>'
    )
