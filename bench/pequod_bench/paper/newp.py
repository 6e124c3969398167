"""Figure 9: Newp, a service like Hacker News, with separate or interleaved joins, over the rate of votes.

A session reads an article's page: its text, its rank, its comments and the karma of each commenter. Then it may vote on
the article and comment on it (paper §5.4). Separate, the page takes two round trips: text, comments and rank, then one
get for each commenter. Interleaved it is one scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, cast

import numpy as np
from pequod_workloads import newp as model
from pequod_workloads.twip import tweet as text_of

from pequod.client import AsyncBatch, AsyncClient, Result, Rows
from pequod_bench.paper.measure import RunOutcome, Trials, timed
from pequod_bench.systems.pequod_results import checked, count_rows, empty
from pequod_bench.systems.pequod_system import PEQUOD, TIMEOUT_S
from pequod_bench.systems.system import BATCH, Server, Work, in_messages
from pequod_bench.workloads.graph import Ids
from pequod_bench.workloads.verify import Differs, Same, Verdict

Version = Literal["separate", "interleaved"]
#: In the order of the figure.
JOINS: Final[dict[Version, str]] = {"separate": model.COUNT_JOINS, "interleaved": model.COUNT_JOINS + model.PAGE_JOINS}
_LOAD_BATCH: Final = 512


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

    def articles(count: int) -> Ids:
        return rng.integers(0, article_count, count)

    def users(count: int) -> Ids:
        return rng.integers(0, model.user_count(article_count), count)

    comment_count = article_count * model.COMMENTS_PER_ARTICLE
    vote_count = article_count * model.VOTES_PER_ARTICLE
    return Sessions(
        authors=users(article_count),
        comment_articles=articles(comment_count),
        commenters=users(comment_count),
        vote_articles=articles(vote_count),
        voters=users(vote_count),
        read_articles=articles(session_count),
        session_commenters=np.where(rng.random(session_count) < model.COMMENT_PART, users(session_count), -1),
        session_voters=np.where(rng.random(session_count) * 100 < vote_percent, users(session_count), -1),
    )


@cache
def _warm_up() -> Sessions:
    return make_sessions(article_count=20, session_count=600, vote_percent=50, seed=0)


def run_newp(version: Version, sessions: Sessions, trials: Trials) -> RunOutcome:
    """Run the sessions on a fresh server."""

    async def run(server: Server) -> RunOutcome:
        async with AsyncClient(f"127.0.0.1:{server.port}", timeout_s=TIMEOUT_S) as client:
            warm_up = _Newp(client, version, _warm_up())
            await warm_up.load()
            await warm_up.run()
            await empty(client)
            newp = _Newp(client, version, sessions)
            return await timed(server, newp, newp.verify)

    return trials.on_server(PEQUOD, run)


def text(number: int) -> bytes:
    """Return an article's or a comment's text."""
    return text_of(number, model.TEXT_BYTES)


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
            await self._client.multi_put(rows[i : i + _LOAD_BATCH])
        await self._pages()

    async def run(self) -> Work:
        """Carry out the sessions; separate pages get their second round trip with a later message."""
        s = self._sessions
        columns = (s.read_articles.tolist(), s.session_voters.tolist(), s.session_commenters.tolist())
        rows = list(zip(*columns, strict=True))
        next_comment = len(s.commenters)

        def fill(batch: AsyncBatch, start: int, stop: int) -> None:
            nonlocal next_comment
            for article, voter, commenter in rows[start:stop]:
                author = self._authors[article]
                self._read(batch, article)
                if voter >= 0:
                    batch.put(model.VOTE % (author, article, voter), model.VOTED)
                if commenter >= 0:
                    batch.put(model.COMMENT % (author, article, next_comment, commenter), text(next_comment))
                    next_comment += 1

        def settle(batch: AsyncBatch, results: list[Result], _asked: None) -> int:
            row_count = count_rows(results)
            if self._version == "separate":
                for comments in results:
                    for commenter in _commenters(comments) if isinstance(comments, Rows) else ():
                        batch.get(b"karma|" + commenter)
            return row_count

        return await in_messages(self._client.batch, fill, settle, len(rows))

    def _read(self, batch: AsyncBatch, article: int) -> None:
        page = (self._authors[article], article)
        if self._version == "interleaved":
            batch.scan(model.PAGE_FIRST % page, model.PAGE_LAST % page)
        else:
            batch.get(model.ARTICLE % page)
            batch.scan(b"comment|%08d|%08d|" % page, b"comment|%08d|%08d}" % page)
            batch.get(model.RANK % page)

    async def verify(self) -> Verdict:
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
            results = await checked(batch.send())
            if self._version == "interleaved":
                pages += [_page_of_scan(cast("Rows", rows)) for rows in results]
            else:
                pages += [await self._page(*results[i : i + 3]) for i in range(0, len(results), 3)]
        return pages

    async def _page(self, article: Any, comments: Any, rank: Any) -> ArticlePage:
        """Return a page of the separate version, with the karma of its commenters, which is read here."""
        commenters = sorted(_commenters(comments))
        batch = self._client.batch()
        for commenter in commenters:
            batch.get(b"karma|" + commenter)
        karma = zip(commenters, await batch.send() if commenters else [], strict=True)
        return ArticlePage(
            text=article,
            rank=int(rank or b"0"),
            comments={(key[26:34], key[35:43]): value for key, value in zip(*comments, strict=True)},
            karma={commenter: int(cast("bytes", value)) for commenter, value in karma if value is not None},
        )


def _population(sessions: Sessions) -> Iterable[tuple[bytes, bytes]]:
    authors = sessions.authors.tolist()
    for article, author in enumerate(authors):
        yield model.ARTICLE % (author, article), text(article)
    comments = zip(sessions.comment_articles.tolist(), sessions.commenters.tolist(), strict=True)
    for comment, (article, commenter) in enumerate(comments):
        yield model.COMMENT % (authors[article], article, comment, commenter), text(comment)
    for article, voter in zip(sessions.vote_articles.tolist(), sessions.voters.tolist(), strict=True):
        yield model.VOTE % (authors[article], article, voter), model.VOTED


def _commenters(comments: Rows) -> set[bytes]:
    return {key[35:43] for key in comments.keys}


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
