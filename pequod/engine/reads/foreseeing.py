"""What reads will lack because keys changed that they select by: it can be loaded before these reads come.

feed     s|ann|bob is there now          noted in the log of t|ann|
foresee  p|bob|0100 .. p|bob}            the read of t|ann| that applies the log would lack it
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pequod.engine.joins.collecting import read_by_log
from pequod.engine.joins.installed import Site
from pequod.engine.joins.projections import Projection
from pequod.engine.joins.relations import Relations
from pequod.engine.joins.timeline import Timeline
from pequod.language.ranges import Range
from pequod.language.spec import DELIMITER

#: A timeline whose log is longer is not read any more, or not often: what it needs is loaded when it is read.
_LOG_MAX: Final = 16


class _Selecting(NamedTuple):
    """Where timelines wait for changes of those whom they select."""

    site: Site
    kernel: Timeline


def foresee(tables: Mapping[bytes, Relations], keys: Iterable[bytes], read_number: int) -> list[Range]:
    """Return the ranges of backed tables that are not loaded, and that the logs with changed keys need.

    Args:
        tables: By their names.
        keys: Their changes are in the logs.
        read_number: The ranges that are loaded count as used by this read.

    Cost:
        O(keys, timelines that wait for them, and entries of their logs).
    """
    found: dict[Range, None] = {}
    selecting: dict[bytes, list[_Selecting]] = {}
    for key in keys:
        name = key.partition(DELIMITER)[0]
        if name not in selecting:
            selecting[name] = list(_selecting(tables.get(name)))
        for site, kernel in selecting[name]:
            match = site.step.match(key)
            updaters = None if match is None else site.at(key, match)
            for context in () if updaters is None else updaters.contexts:
                if context.upper is None and 0 < len(context.log) <= _LOG_MAX:
                    found |= dict.fromkeys(read_by_log(kernel, context, read_number))
    return list(found)


def _selecting(relations: Relations | None) -> Iterator[_Selecting]:
    """Yield where timelines select by the keys of a table; what is shown in records is not foreseen."""
    for reader in () if relations is None else relations.readers:
        for site in () if isinstance(reader, Projection) else reader:
            kernel, join = site.plan.log_kernel, site.join
            if kernel is not None and not site.step.is_value and join.reads_base and not join.reads_unbacked:
                yield _Selecting(site, kernel)
