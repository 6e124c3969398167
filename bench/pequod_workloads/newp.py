"""Newp, a service like Hacker News: its keys and joins, and the numbers of its population.

    article|<author>|<id>                      -> text
    comment|<author>|<id>|<cid>|<commenter>    -> text
    vote|<author>|<id>|<voter>                 -> 1
    karma|<author>, rank|<author>|<id>         computed: votes for an author, for an article
    page|<author>|<id>|...                     computed, if interleaved: all of an article's page in one range

Source:
    Paper §2.3 and §5.4.
"""

from __future__ import annotations

from typing import Final

COUNT_JOINS: Final = """
karma|<author:8> = count vote|<author>|<id:8>|<voter:8>;
rank|<author:8>|<id:8> = count vote|<author>|<id>|<voter:8>;
"""
PAGE_JOINS: Final = """
page|<author:8>|<id:8>|a = copy article|<author>|<id>;
page|<author:8>|<id:8>|r = copy rank|<author>|<id>;
page|<author:8>|<id:8>|c|<cid:8>|<commenter:8> = copy comment|<author>|<id>|<cid>|<commenter>;
page|<author:8>|<id:8>|k|<cid:8>|<commenter:8> = check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;
"""

ARTICLE: Final = b"article|%08d|%08d"
COMMENT: Final = b"comment|%08d|%08d|%08d|%08d"
VOTE: Final = b"vote|%08d|%08d|%08d"
#: The range of a page.
PAGE_FIRST: Final = b"page|%08d|%08d|"
PAGE_LAST: Final = b"page|%08d|%08d}"
KARMA: Final = b"karma|%08d"
RANK: Final = b"rank|%08d|%08d"
#: The value of every vote.
VOTED: Final = b"1"
TEXT_BYTES: Final = 100

#: Of the sessions, whatever the rate of votes.
COMMENT_PART: Final = 0.01
#: The paper's population, for each article.
USERS_PER_ARTICLE, COMMENTS_PER_ARTICLE, VOTES_PER_ARTICLE = 0.5, 10, 20
#: Keys have eight digits for an article, a user and a comment.
IDS_MAX: Final = 10**8


def user_count(article_count: int) -> int:
    """Return the number of users who write, comment and vote."""
    return max(2, round(article_count * USERS_PER_ARTICLE))
