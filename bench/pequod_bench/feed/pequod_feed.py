"""The application's part where joins keep the feeds: it writes to the database, and reads pages."""

from __future__ import annotations

import json

from pequod.client import Client
from pequod_bench.feed.pages import PAGE, Status


class PequodFeed:
    """Pages of feeds that feed.joins computes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def home(self, user: int, count: int = PAGE) -> list[Status]:
        """Return the newest statuses of a user's home feed."""
        return self._newest(f"home|{user:08}|", count)

    def listed(self, user: int, number: int, count: int = PAGE) -> list[Status]:
        """Return the newest statuses of a list of a user."""
        return self._newest(f"listed|{user:08}|{number:08}|", count)

    def unread(self, user: int, last_read: int) -> int:
        """Return how many statuses of the home feed came after one."""
        return self._client.count(f"home|{user:08}|{last_read + 1:012}", f"home|{user:08}}}")

    def _newest(self, prefix: str, count: int) -> list[Status]:
        page = []
        for key, value in self._client.scan(prefix=prefix, limit=count, reverse=True):
            id_, *_, voice = key.split(b"|")[prefix.count("|") :]
            row = json.loads(value)
            page.append(Status(int(id_), int(voice[1:]), row["text"], row["reblog_of_id"]))
        return page
