"""The comparison as one HTML file that needs no other."""

from __future__ import annotations

from html import escape
from typing import Final

from pequod_bench.compare.comparison import Comparison
from pequod_bench.compare.plots import figures
from pequod_bench.compare.tables import Table, tables, verdicts

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em; color: #222 }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em }
table { border-collapse: collapse; font-size: .85em; margin: 1em 0 }
th, td { padding: .3em .6em; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top }
th:first-child, td:first-child { text-align: left; white-space: nowrap }
svg { max-width: 100%; height: auto }
code { background: #f3f3f3; padding: .1em .3em } .note { color: #555; font-size: .9em } .wrong { color: #b00 }
.scroll { overflow-x: auto } section { break-inside: avoid }
@media print { body { font-size: 11px; max-width: none; margin: 0 } }
"""


def to_html(comparison: Comparison) -> str:
    """Return the whole report."""
    skipped = [f"<p>Skipped: {escape(name)}: {escape(why)}.</p>" for name, why in comparison.skipped.items()]
    wrong = [f'<p class="wrong">WRONG: {escape(what)}</p>' for what in comparison.differences()]
    parts = zip(tables(comparison), figures(comparison), strict=True)
    sections = [f"<section>{_table(table)}{svg}</section>" for table, svg in parts]
    sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in verdicts(comparison))
    systems = "".join(
        f"<li><b>{escape(result.title)}</b> ({escape(result.version)}). {escape(result.tuning)}</li>"
        for result in comparison.twip
    )
    return "\n".join(
        [
            '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Pequod beside other systems</title><style>{_STYLE}</style></head><body>",
            f"<h1>Pequod beside other systems</h1><p><code>{escape(comparison.command)}</code></p>",
            f'<p class="note">{escape(comparison.where())}</p>',
            *skipped,
            *wrong,
            f"<h2>Where Pequod wins and loses</h2><ul>{sentences}</ul>",
            *sections,
            f"<h2>Systems and what was done for them</h2><ul>{systems}</ul>" if systems else "",
            "</body></html>\n",
        ]
    )


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows)
    return (
        f'<h2>{escape(table.title)}</h2><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>'
        f'<p class="note">{escape(table.note)}</p>'
    )
