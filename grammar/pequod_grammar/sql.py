"""What to write for words of SQL that the language does not have."""

from __future__ import annotations

from typing import Final

_READER: Final = "a join computes all its keys, in the order of their bytes"
_KEEP: Final = "`keep last 10 of <user>`, at the end of a join, leaves ten keys of each user"
_BY_SLOTS: Final = (
    "an aggregate has one key for each set of the output's slots: `karma|<author> = count vote|<author>|<id>`"
)
_CHECK: Final = "a source is an operator and a pattern, and `check` joins one more: `check s|<user>|<poster>`"
_OUTER: Final = (
    "`check?` joins one whose record may be missing, and gives nulls then: "
    "`copy owns|<user>|<film> as {since} check? rating|<user>|<film> as {stars}`"
)
_ONE_VALUE: Final = "compare with one value, or give a slot the value: `status = <status>`"

_UNLESS: Final = "`unless` leaves out the rows for which a key is there: `unless mute|<user>|<poster>`"
_AVG: Final = "the operator is `avg`: `rating|<film> = avg vote|<film>|<user>`"

#: In lower case.
SQL: Final = {
    "limit": f"{_KEEP}; the reader of others takes some: `scan(first, last, limit=10)`",
    "offset": f"{_READER}; the reader goes on behind the last key that it has seen",
    "top": f"{_KEEP}. They are in the order of their bytes: put the number into the key",
    "order": f"{_READER}: put first in the output what it is to be ordered by",
    "group": _BY_SLOTS,
    "by": _BY_SLOTS,
    "average": _AVG,
    "mean": _AVG,
    "distinct": "keys are distinct: leave out of the output the slots that are not to tell rows apart. "
    "To count distinct values, count the keys of another join",
    "not": f"`!=` compares a field, and {_UNLESS}",
    "except": _UNLESS,
    "having": "a count or a sum is compared by the reader; the fields of a source are compared after `with`",
    "where": "conditions follow the pattern of a source: `copy article|<id> with votes > 10`",
    "select": "a join reads `output = copy source`; after `as` stand the fields: `copy article|<id> as {title}`",
    "from": "a source is an operator and a pattern: `copy article|<id>`",
    "join": _CHECK,
    "inner": _CHECK,
    "left": _OUTER,
    "right": f"{_OUTER}; write it from the other side",
    "full": f"{_OUTER}; a full join is two joins with one output, the other one with `unless`",
    "outer": _OUTER,
    "on": "sources are joined where slots have one name: `check s|<user>|<poster> copy p|<poster>|<time>`",
    "union": "write two joins with the same output, with a `;` between them",
    "in": _ONE_VALUE,
    "like": f"a text is compared as a whole; {_ONE_VALUE}",
    "between": "write two conditions: `votes >= 10, votes <= 20`",
}
