"""The application's part where it keeps home feeds in Redis as Mastodon does: it filters when it pushes.

feed:<user>    sorted set    ids of statuses by themselves, the newest 400
seen           sorted set    users by the day of their last page; feeds of those who are away for 14 days are dropped
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from pequod_bench.feed.pages import HOME, KEPT, PAGE, STATUSES, VISIBLE, Status

AWAY_DAYS: Final = 14
_RECEIVERS: Final = f"""SELECT r.account_id FROM {STATUSES} JOIN follows r ON r.target_account_id = s.account_id
    WHERE s.id = %s AND (r.account_id = s.account_id OR {VISIBLE.format(me="r.account_id")})"""
_FOLLOWERS: Final = "SELECT account_id FROM follows WHERE target_account_id IN %s"
_OF_AUTHOR: Final = """SELECT s.id FROM statuses s LEFT JOIN statuses b ON b.id = s.reblog_of_id
    WHERE s.id = ANY(%s) AND %s IN (s.account_id, b.account_id)"""
_MERGED: Final = HOME.replace("WHERE", "WHERE s.account_id = %(author)s AND", 1)
_ROWS: Final = "SELECT id, account_id, text, reblog_of_id FROM statuses WHERE id = ANY(%s) AND deleted_at IS NULL"


class RedisFeed:
    """Home feeds that the application pushes; ``redis`` is a client of redis-py, ``cursor`` one of psycopg2."""

    def __init__(self, redis: Any, cursor: Any) -> None:
        self._redis = redis
        self._cursor = cursor
        self.writes = 0

    def push(self, id_: int, day: int) -> None:
        """Put a status into the feeds of those who are to see it and were here lately."""
        active = set(map(int, self._redis.zrangebyscore("seen", day - AWAY_DAYS, "+inf")))
        self._add({user: [id_] for (user,) in self._ask(_RECEIVERS, (id_,)) if user in active})

    def retract(self, ids: list[int], authors: list[int]) -> None:
        """Take statuses out of the feeds of their authors' followers."""
        pipe = self._redis.pipeline(transaction=False)
        for (user,) in self._ask(_FOLLOWERS, (tuple(authors),)):
            pipe.zrem(f"feed:{user}", *ids)
        self.writes += len(pipe.execute())

    def merge(self, user: int, author: int) -> None:
        """Put what a user is to see of an author into a feed that is there."""
        if self._redis.exists(f"feed:{user}"):
            self._add({user: [row[0] for row in self._ask(_MERGED, {"me": user, "author": author})]})

    def unmerge(self, user: int, author: int) -> None:
        """Take an author's statuses out of a feed, and boosts of them."""
        ids = list(map(int, self._redis.zrange(f"feed:{user}", 0, -1)))
        if gone := [row[0] for row in self._ask(_OF_AUTHOR, (ids, author))]:
            self._redis.zrem(f"feed:{user}", *gone)

    def part(self, user: int, other: int) -> None:
        """Take two users, of whom one blocks the other, out of each other's feeds."""
        self.unmerge(user, other)
        self.unmerge(other, user)

    def regain(self, user: int) -> None:
        """Make a feed that is there anew, since rules of the user have changed that concern many statuses."""
        if self._redis.delete(f"feed:{user}"):
            self._add({user: [row[0] for row in self._ask(HOME, {"me": user})]})

    def clean(self, day: int) -> None:
        """Drop the feeds of those who are away, as a job does once a day."""
        away = self._redis.zrangebyscore("seen", "-inf", f"({day - AWAY_DAYS}")
        if away:
            self._redis.delete(*(f"feed:{int(user)}" for user in away))
            self._redis.zrem("seen", *away)

    def forget(self, user: int) -> None:
        self._redis.delete(f"feed:{user}")
        self._redis.zrem("seen", user)

    def page(self, user: int, day: int, count: int = PAGE) -> list[Status]:
        """Return the newest statuses of a user's home feed, which is made anew for those who return."""
        if self._redis.zscore("seen", user) is None:
            self._add({user: [row[0] for row in self._ask(HOME, {"me": user})]})
        self._redis.zadd("seen", {str(user): day})
        ids = list(map(int, self._redis.zrevrange(f"feed:{user}", 0, count - 1)))
        rows = {row[0]: Status(*row) for row in self._ask(_ROWS, (ids,))}
        return [rows[id_] for id_ in ids if id_ in rows]

    def _add(self, feeds: dict[int, list[int]]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for user, ids in feeds.items():
            if ids:
                pipe.zadd(f"feed:{user}", {str(id_): id_ for id_ in ids})
                pipe.zremrangebyrank(f"feed:{user}", 0, -KEPT - 1)
        self.writes += len(pipe.execute()) // 2

    def _ask(self, statement: str, values: Any) -> Iterable[Any]:
        self._cursor.execute(statement, values)
        rows: list[Any] = self._cursor.fetchall()
        return rows
