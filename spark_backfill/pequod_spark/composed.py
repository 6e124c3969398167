r"""Values with fields of several sources, as a Spark column.

slot of a check   {"name":"A\x01B"}    null where a `check?` has no record
value             {"stars":5}           what the value source gives
composed          {"stars":5,"name":"A|B"}
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from pequod.language.composing import STAND_IN, nulls, object_slot
from pequod.language.spec import DELIMITER, JoinSpec, Operator


def composed_value(spec: JoinSpec, columns: dict[str, str]) -> Column:
    """Return the output's value.

    Args:
        spec: The join, whose value has fields of several sources.
        columns: The names of the columns of slots; that of the value source is ``value``.
    """
    members = []
    for depth, source in enumerate(spec.sources):
        if source.given is None:
            continue
        if source.operator.gives_value:
            found = f.col("value").cast("string")
        else:
            shown = f.col(columns[object_slot(depth).name]).cast("string")
            found = f.translate(shown, STAND_IN.decode(), DELIMITER.decode())
        if source.operator is Operator.OPTIONAL:
            found = f.coalesce(found, f.lit(nulls(source).decode()))
        # Without its braces; an object without fields has no part in the value.
        members.append(f.nullif(f.substring(found, f.lit(2), f.length(found) - 2), f.lit("")))
    return f.concat(f.lit("{"), f.concat_ws(",", *members), f.lit("}")).cast("binary")
