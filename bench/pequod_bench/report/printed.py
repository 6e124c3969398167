"""How each benchmark prints what it found: as one JSON object, or as tables for a person."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, cast

from rich.console import Console
from rich.table import Table


class Printed:
    """A report: a dataclass of figures."""

    __slots__ = ()
    #: The spaces that a level of the JSON object is indented by; None for one line.
    indent: ClassVar[int | None] = None

    def derived(self) -> dict[str, object]:
        """Return figures that stand in the JSON object after the fields, and follow from these."""
        return {}

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        return json.dumps(asdict(cast("Any", self)) | self.derived(), indent=self.indent)


def print_figures(console: Console, table: Table, figures: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table: the columns that it has, a column for each of the ``figures``, and the rows.

    Figures wrap if the first column does.
    """
    no_wrap = bool(table.columns) and table.columns[0].no_wrap
    for name in figures:
        table.add_column(name, justify="right", no_wrap=no_wrap)
    for row in rows:
        table.add_row(*row)
    console.print(table)
