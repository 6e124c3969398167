"""Joins that would compute keys which clients have written, or which a database owns."""

from __future__ import annotations

from pequod.engine.joins.relations import Directory
from pequod.escapes import shown
from pequod.language.errors import JoinError
from pequod.language.patterns import compile_matcher
from pequod.language.ranges import prefix_end
from pequod.language.spec import DELIMITER, JoinSpec


def refuse_written_keys(directory: Directory, spec: JoinSpec) -> None:
    """Refuse a join of keys that clients have written, or that a database owns."""
    first = spec.output.literal_prefix
    match = compile_matcher(spec.output).match
    related = directory.by_name.get(first.partition(DELIMITER)[0])
    if related is None:
        return
    table = related.table
    if table.presence is not None:
        why, more = "which belong to the database behind this cache", ""
        if table.is_paged:
            why, more = "whose rows are not all in memory", ", or give the server more memory"
        raise JoinError(
            f"the join would compute keys of {shown(table.prefix)}, {why}",
            hint=f"choose another output table{more}",
            span=spec.output.span,
        )
    for key in table.slice(first, prefix_end(first)).keys:
        if match(key):
            raise JoinError(
                f"the join would compute the key {shown(key)}, which a client has written",
                hint="remove the written keys of this pattern first, or choose another output table",
                span=spec.output.span,
            )
