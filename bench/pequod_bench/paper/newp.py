"""Figure 9: Newp, a service like Hacker News, with separate or interleaved joins, over the rate of votes.

    article|<author>|<id>                      -> text
    comment|<author>|<id>|<cid>|<commenter>    -> text
    vote|<author>|<id>|<voter>                 -> 1
    karma|<author>, rank|<author>|<id>         computed: votes for an author, for an article
    page|<author>|<id>|...                     computed, if interleaved: all of an article's page in one range

A session reads an article's page: its text, its rank, its comments and the karma of each commenter. Then it may vote on
the article and comment on it (paper §5.4). Separate, the page takes two round trips: text, comments and rank, then one
get for each commenter. Interleaved it is one scan.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, cast

import numpy as np

from pequod.client import AsyncClient, Result, Rows
from pequod_bench.paper.measure import RUN_S_MAX, RunOutcome, started, timed, within
from pequod_bench.systems.pequod_results import empty, raise_first
from pequod_bench.systems.pequod_system import PEQUOD, TIMEOUT_S
from pequod_bench.systems.system import BATCH, WINDOW, Server, Work
from pequod_bench.workloads.graph import Ids
from pequod_bench.workloads.verify import Differs, Same, Verdict

Version = Literal["separate", "interleaved"]
VERSIONS: Final[tuple[Version, ...]] = ("separate", "interleaved")
VOTE_PERCENTS: Final = (0, 10, 25, 50, 75, 90, 100)
#: Of the sessions, whatever the rate of votes.
COMMENT_PART: Final = 0.01
#: The paper's population, for each article: half a user, ten comments, twenty votes.
USERS_PER_ARTICLE: Final = 0.5
COMMENTS_PER_ARTICLE: Final = 10
VOTES_PER_ARTICLE: Final = 20
_TEXT: Final = b"whales are not fish, whatever the law of the land may say of them. " * 3
_LOAD_BATCH: Final = 512

_COUNTS: Final = """
karma|<author:8> = count vote|<author>|<id:8>|<voter:8>;
rank|<author:8>|<id:8> = count vote|<author>|<id>|<voter:8>;
"""
_PAGES: Final = """
page|<author:8>|<id:8>|a = copy article|<author>|<id>;
page|<author:8>|<id:8>|r = copy rank|<author>|<id>;
page|<author:8>|<id:8>|c|<cid:8>|<commenter:8> = copy comment|<author>|<id>|<cid>|<commenter>;
page|<author:8>|<id:8>|k|<cid:8>|<commenter:8> = check comment|<author>|<id>|<cid>|<commenter> copy karma|<commenter>;
"""
JOINS: Final[dict[Version, str]] = {"separate": _COUNTS, "interleaved": _COUNTS + _PAGES}


@dataclass(frozen=True, slots=True)
class Sessions:
    """What is there before the start, and what is done then; equal for both versions.

    Article i is written by ``authors[i]``; comment j has the id j. A voter or commenter of -1 means none.
    """

    authors: Ids
    #: Columns of comments and votes that are there from the start.
    comment_articles: Ids
    commenters: Ids
    vote_articles: Ids
    voters: Ids
    #: One entry a session.
    read_articles: Ids
    session_voters: Ids
    session_commenters: Ids


def make_sessions(article_count: int, session_count: int, vote_percent: int, seed: int) -> Sessions:
    """Draw everything; the population is the same for every rate of votes."""
    rng = np.random.default_rng(seed)
    user_count = max(2, round(article_count * USERS_PER_ARTICLE))

    def articles(count: int) -> Ids:
        return rng.integers(0, article_count, count)

    def users(count: int) -> Ids:
        return rng.integers(0, user_count, count)

    comment_count, vote_count = article_count * COMMENTS_PER_ARTICLE, article_count * VOTES_PER_ARTICLE
    return Sessions(
        authors=users(article_count),
        comment_articles=articles(comment_count),
        commenters=users(comment_count),
        vote_articles=articles(vote_count),
        voters=users(vote_count),
        read_articles=articles(session_count),
        session_commenters=np.where(rng.random(session_count) < COMMENT_PART, users(session_count), -1),
        session_voters=np.where(rng.random(session_count) * 100 < vote_percent, users(session_count), -1),
    )


@cache
def _warm_up() -> Sessions:
    return make_sessions(article_count=20, session_count=600, vote_percent=50, seed=0)


def run(version: Version, sessions: Sessions, loop: asyncio.Runner, *, pin: bool = False) -> RunOutcome:
    """Run the sessions on a fresh server."""
    with started(PEQUOD, pin=pin) as server:
        return loop.run(within(RUN_S_MAX, _run(version, sessions, server)))


async def _run(version: Version, sessions: Sessions, server: Server) -> RunOutcome:
    async with AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client:
        warm_up = _Newp(client, version, _warm_up())
        await warm_up.load()
        await warm_up.run()
        await empty(client)
        newp = _Newp(client, version, sessions)
        return await timed(server, newp, newp.verify)


def article_key(author: int, article: int) -> bytes:
    """Return the key of an article's text."""
    return b"article|%08d|%08d" % (author, article)


def comment_key(author: int, article: int, comment: int, commenter: int) -> bytes:
    """Return the key of a comment."""
    return b"comment|%08d|%08d|%08d|%08d" % (author, article, comment, commenter)


def vote_key(author: int, article: int, voter: int) -> bytes:
    """Return the key of a vote."""
    return b"vote|%08d|%08d|%08d" % (author, article, voter)


def text(number: int) -> bytes:
    """Return an article's or a comment's text."""
    return b"%d %b" % (number, _TEXT[:100])


@dataclass(slots=True)
class ArticlePage:
    """What a reader of an article sees."""

    text: bytes | None
    rank: int
    #: Text by comment's id and commenter, both as they stand in keys.
    comments: dict[tuple[bytes, bytes], bytes]
    #: Of each commenter who has any.
    karma: dict[bytes, int]


class _Newp:
    """The application, in one of its versions."""

    def __init__(self, client: AsyncClient, version: Version, sessions: Sessions) -> None:
        self._client = client
        self._version: Version = version
        self._sessions = sessions
        self._authors: list[int] = sessions.authors.tolist()

    async def load(self) -> None:
        """Write the population, and read every page once, as after hours of service."""
        await self._client.add_join(JOINS[self._version])
        rows = list(_population(self._sessions))
        for i in range(0, len(rows), _LOAD_BATCH):
            batch = self._client.batch()
            for key, value in rows[i : i + _LOAD_BATCH]:
                batch.put(key, value)
            raise_first(await batch.send())
        await self._pages()

    async def run(self) -> Work:
        """Carry out the sessions, `BATCH` of them a message, `WINDOW` messages under way."""
        s = self._sessions
        under_way: deque[Awaitable[list[Result]]] = deque()
        row_count = command_count = message_count = 0
        next_comment = len(s.commenters)
        columns = (s.read_articles.tolist(), s.session_voters.tolist(), s.session_commenters.tolist())
        rows = list(zip(*columns, strict=True))
        start = 0
        while start < len(rows) or under_way:
            batch = self._client.batch()
            if under_way and (len(under_way) == WINDOW or start >= len(rows)):
                results = await under_way.popleft()
                row_count += _row_count(results)
                if self._version == "separate":
                    for karma in _karma_gets(results):
                        batch.get(karma)
            for article, voter, commenter in rows[start : start + BATCH]:
                author = self._authors[article]
                self._read(batch, article)
                if voter >= 0:
                    batch.put(vote_key(author, article, voter), b"1")
                if commenter >= 0:
                    batch.put(comment_key(author, article, next_comment, commenter), text(next_comment))
                    next_comment += 1
            start += BATCH
            if len(batch):
                command_count += len(batch)
                message_count += 1
                under_way.append(batch.send())
        return Work(row_count, command_count, message_count)

    def _read(self, batch: Any, article: int) -> None:
        tail = b"%08d|%08d" % (self._authors[article], article)
        if self._version == "interleaved":
            batch.scan(b"page|" + tail + b"|", b"page|" + tail + b"}")
        else:
            batch.get(b"article|" + tail)
            batch.scan(b"comment|" + tail + b"|", b"comment|" + tail + b"}")
            batch.get(b"rank|" + tail)

    async def verify(self) -> Verdict:
        """Compare every article's page with what the votes and comments make it."""
        wanted = expected_pages(self._sessions)
        row_count = 0
        for article, (found, page) in enumerate(zip(await self._pages(), wanted, strict=True)):
            if found != page:
                return Differs(f"the page of article {article} must be {page}, and is {found}")
            row_count += 2 + len(page.comments) + len(page.karma)
        return Same(len(wanted), row_count)

    async def _pages(self) -> list[ArticlePage]:
        pages: list[ArticlePage] = []
        for start in range(0, len(self._authors), BATCH):
            batch = self._client.batch()
            for article in range(start, min(start + BATCH, len(self._authors))):
                self._read(batch, article)
            results = await batch.send()
            raise_first(results)
            pages += await self._assemble(results)
        return pages

    async def _assemble(self, results: list[Result]) -> list[ArticlePage]:
        if self._version == "interleaved":
            return [_page_of_scan(cast("Rows", rows)) for rows in results]
        pages: list[ArticlePage] = []
        for i in range(0, len(results), 3):
            article, comments, rank = results[i : i + 3]
            assert isinstance(comments, Rows)
            batch = self._client.batch()
            commenters = sorted(_commenters(comments))
            for commenter in commenters:
                batch.get(b"karma|" + commenter)
            karma = await batch.send() if len(batch) else []
            pages.append(
                ArticlePage(
                    text=cast("bytes | None", article),
                    rank=int(cast("bytes | None", rank) or b"0"),
                    comments={(key[26:34], key[35:43]): value for key, value in zip(*comments, strict=True)},
                    karma={
                        commenter: int(cast("bytes", value))
                        for commenter, value in zip(commenters, karma, strict=True)
                        if value is not None
                    },
                )
            )
        return pages


def _population(sessions: Sessions) -> Iterable[tuple[bytes, bytes]]:
    authors = sessions.authors.tolist()
    for article, author in enumerate(authors):
        yield article_key(author, article), text(article)
    comments = zip(sessions.comment_articles.tolist(), sessions.commenters.tolist(), strict=True)
    for comment, (article, commenter) in enumerate(comments):
        yield comment_key(authors[article], article, comment, commenter), text(comment)
    for article, voter in zip(sessions.vote_articles.tolist(), sessions.voters.tolist(), strict=True):
        yield vote_key(authors[article], article, voter), b"1"


def _row_count(results: list[Result]) -> int:
    raise_first(results)
    return sum(len(result.keys) if isinstance(result, Rows) else result is not None for result in results)


def _commenters(comments: Rows) -> set[bytes]:
    return {key[35:43] for key in comments.keys}


def _karma_gets(results: list[Result]) -> list[bytes]:
    """Return the keys of a second round trip: the karma of every commenter, page by page."""
    return [
        b"karma|" + commenter
        for comments in results
        if isinstance(comments, Rows)
        for commenter in _commenters(comments)
    ]


def _page_of_scan(rows: Rows) -> ArticlePage:
    page = ArticlePage(None, 0, {}, {})
    for key, value in zip(rows.keys, rows.values, strict=True):
        match key[23:24]:
            case b"a":
                page.text = value
            case b"r":
                page.rank = int(value)
            case b"c":
                page.comments[key[25:33], key[34:42]] = value
            case _:
                page.karma[key[34:42]] = int(value)
    return page


def expected_pages(sessions: Sessions) -> list[ArticlePage]:
    """Compute every article's page as it must be after all sessions."""
    s = sessions
    authors = s.authors.tolist()
    voted, commented = s.session_voters >= 0, s.session_commenters >= 0
    votes = set(zip(s.vote_articles.tolist(), s.voters.tolist(), strict=True))
    votes |= set(zip(s.read_articles[voted].tolist(), s.session_voters[voted].tolist(), strict=True))
    ranks = Counter(article for article, _ in votes)
    karma = Counter(authors[article] for article, _ in votes)
    pages = [ArticlePage(text(article), ranks[article], {}, {}) for article in range(len(authors))]
    comment_articles = s.comment_articles.tolist() + s.read_articles[commented].tolist()
    commenters = s.commenters.tolist() + s.session_commenters[commented].tolist()
    for comment, (article, commenter) in enumerate(zip(comment_articles, commenters, strict=True)):
        page, name = pages[article], b"%08d" % commenter
        page.comments[b"%08d" % comment, name] = text(comment)
        if karma[commenter]:
            page.karma[name] = karma[commenter]
    return pages
