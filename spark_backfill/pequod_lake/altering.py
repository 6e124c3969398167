"""Columns that are added and dropped, as the text of a schema has them: at its end, in their order.

    [[change]]
    table = "posts"
    add = "likes"
    type = "int64"

>>> print(change_text("posts", "drop", "body"))
<BLANKLINE>
[[change]]
table = "posts"
drop = "body"
<BLANKLINE>
"""

from __future__ import annotations

import json


def change_text(table: str, what: str, name: str, kind: str | None = None) -> str:
    """Return what is added to the text of a schema to add or drop a column.

    Args:
        what: `add`, with a type, or `drop`.
    """
    told = f"\n[[change]]\ntable = {json.dumps(table)}\n{what} = {json.dumps(name)}\n"
    return told + (f"type = {json.dumps(kind)}\n" if kind is not None else "")
