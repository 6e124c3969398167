"""The joins of a simulated cluster, drawn for each schedule: they read tables of both home groups.

    t|ann|0100|bob       posts of those whom ann follows                  karma|bob    the number of bob's voters
    feed|ann|0100|bob    the last ones of those for whom ann did not vote
    unread|ann|0100|bob  posts of those who have no voter                 top|2|bob    who has the most voters
    old|0100|bob         the first posts of all                           loud|ann     the number of posts, in part
"""

from __future__ import annotations

from random import Random
from typing import Final

#: These are always there.
_PLAIN: Final = """
t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
karma|<poster> = count q|<poster>|<voter>;
"""
#: Of these, some are there; {number} of the rows of each group are kept.
_MORE: Final = (
    "feed|<user>|<time:4>|<poster> = check s|<user>|<poster> unless q|<poster>|<user> copy p|<poster>|<time> "
    "keep last {number} of <user>",
    "unread|<user>|<time:4>|<poster> = check s|<user>|<poster> unless q|<poster>|<anybody> copy p|<poster>|<time>",
    "old|<time:4>|<poster> = copy p|<poster>|<time> keep first {number}",
    "top|<votes:i64>|<poster> = copy karma|<poster> with . = <votes:i64> keep last {number}",
    "loud|<user> = check s|<user>|<poster> unless q|<poster>|<user> with . >= 40 count p|<poster>|<time>",
)


def draw_joins(random: Random) -> str:
    """Return the joins of a schedule, as the map of its cluster has them."""
    drawn = [join.format(number=random.choice([1, 2, 3])) for join in _MORE if random.random() < 0.7]
    return _PLAIN + "".join(f"{join};\n" for join in drawn)
