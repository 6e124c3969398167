"""The joins of a simulated cluster, drawn for each schedule: they read tables of both home groups.

t|ann|0100|bob       posts of those whom ann follows                  karma|bob    the votes for bob
feed|ann|0100|bob    the last ones of those for whom ann did not vote
unread|ann|0100|bob  posts of those who have no voter                 top|2|bob    who has the most votes
old|0100|bob         the first posts of all                           loud|ann     the number of posts, in part
"""

from __future__ import annotations

from random import Random
from typing import Final

_FOLLOWED: Final = "check s|<user>|<poster>"
_POSTS: Final = "copy p|<poster>|<time>"
#: By tables, joins of which one is there, and another one may take its place; {number} of the rows of a group are kept.
_JOINS: Final = {
    "t": (
        f"t|<user>|<time:4>|<poster> = {_FOLLOWED} {_POSTS}",
        f"t|<user>|<time:4>|<poster> = {_FOLLOWED} unless q|<poster>|<user> {_POSTS}",
        f"t|<user>|<time:4>|<poster> = {_FOLLOWED} {_POSTS} keep last {{number}} of <user>",
    ),
    "karma": (
        "karma|<poster> = count q|<poster>|<voter>",
        "karma|<poster> = sum q|<poster>|<voter>",
        "karma|<poster> = check s|<voter>|<poster> max q|<poster>|<voter>",
    ),
    "feed": (
        f"feed|<user>|<time:4>|<poster> = {_FOLLOWED} unless q|<poster>|<user> {_POSTS} keep last {{number}} of <user>",
        f"feed|<user>|<time:4>|<poster> = {_FOLLOWED} {_POSTS} keep first {{number}}",
    ),
    "unread": (
        f"unread|<user>|<time:4>|<poster> = {_FOLLOWED} unless q|<poster>|<anybody> {_POSTS}",
        f"unread|<user>|<time:4>|<poster> = {_FOLLOWED} unless q|<poster>|<anybody> with . >= 40 {_POSTS}",
    ),
    "old": (f"old|<time:4>|<poster> = {_POSTS} keep first {{number}}",),
    "top": ("top|<votes:i64>|<poster> = copy karma|<poster> with . = <votes:i64> keep last {number}",),
    "loud": (
        f"loud|<user> = {_FOLLOWED} unless q|<poster>|<user> with . >= 40 count p|<poster>|<time>",
        f"loud|<user> = {_FOLLOWED} count p|<poster>|<time>",
    ),
}
#: Tables that are always there.
_ALWAYS: Final = ("t", "karma")


def draw_joins(random: Random) -> str:
    """Return the joins of a schedule, as the map of its cluster has them."""
    tables = [table for table in _JOINS if table in _ALWAYS or random.random() < 0.7]
    return "".join(f"{_draw_join(random, table)};\n" for table in tables)


def draw_replacing(random: Random) -> tuple[str, str]:
    """Return the name of a join that may be there, and a join that may take its place."""
    table = random.choice(list(_JOINS))
    return table, _draw_join(random, table)


def _draw_join(random: Random, table: str) -> str:
    return random.choice(_JOINS[table]).format(number=random.choice([1, 2, 3]))
