"""How each benchmark prints what it found: as one JSON object, or as tables for a person."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from pequod.errors import PequodError


class WrongAnswerError(PequodError):
    """Something under test has answered other than it must, and there is nothing to report."""


class Printed(ABC):
    """A report: a dataclass of figures."""

    __slots__ = ()

    def to_json(self) -> str:
        """Return it as one JSON object."""
        return json.dumps(asdict(cast("Any", self)))

    def fault(self) -> str:
        """Return the first answer that is not what it must be; empty if all are."""
        return ""

    def unmeasured(self) -> str:
        """Say what could not be measured; empty if all was."""
        return ""

    @abstractmethod
    def print_table(self, console: Console) -> None:
        """Print it for a person."""


def print_rows(
    console: Console, rows: Iterable[object], columns: Mapping[str, str], *, title: str = "", left: int = 1
) -> None:
    """Print a table of objects.

    Args:
        rows: An object, or a tuple, for each row.
        columns: Heads, each with its format, such as ``{0.seconds:.2f}`` or ``{0[1]:,}``; None shows as nothing.
        title: What stands above.
        left: The number of columns that are text, the first ones; the others are figures.
    """
    table = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, show_header=any(map(str.strip, columns))
    )
    for number, head in enumerate(columns):
        table.add_column(head.strip(), justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*(_shown(form, row) for form in columns.values()))
    console.print(table)


def _shown(form: str, row: object) -> str:
    try:
        return form.format(row)
    except TypeError:
        return ""


def table_text(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first hold figures."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, rule, *rows))
