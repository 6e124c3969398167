"""Twip over a lake: its schema, its mapping, and random posts and subscriptions with the timelines that they make."""

from __future__ import annotations

import random

from pequod_lake.ingest import Ingestor

MAPPING = """
[[mapping]]
keys = "p|<poster>|<time:10>"
table = "posts"
slots.time = { column = "at", type = "integer" }
value = "body"

[[mapping]]
keys = "s|<user>|<poster>"
table = "follows"
"""
SCHEMA = """
[[id]]
name = "name"

[[table]]
name = "posts"
key = ["poster", "at"]
columns = { poster = "id:name", at = "int64", body = "text" }

[[table]]
name = "follows"
key = ["user", "poster"]
columns = { user = "id:name", poster = "id:name" }
"""
JOIN = "t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
USERS = [f"u{number}" for number in range(8)]


class Twip:
    """Writes posts and subscriptions into a lake, and knows what timelines they make."""

    def __init__(self, ingestor: Ingestor, seed: int) -> None:
        self._ingestor = ingestor
        self._dice = random.Random(seed)
        self._count = 0
        self.posts: dict[tuple[str, int], str] = {}
        self.follows: set[tuple[str, str]] = set()

    def write(self) -> int:
        self._count += 1
        upload = self._ingestor.upload(f"twip-{self._count}")
        for _ in range(self._dice.randint(1, 4)):
            user, other = self._dice.choices(USERS, k=2)
            at = self._dice.randrange(30)
            chance = self._dice.random()
            if chance < 0.5:
                self.posts[user, at] = f"post {self._count} {chance}"
                upload.put("posts", {"poster": [user], "at": [at], "body": [self.posts[user, at]]})
            elif chance < 0.65:
                self.posts.pop((user, at), None)
                upload.delete("posts", {"poster": [user], "at": [at]})
            elif chance < 0.9:
                self.follows.add((user, other))
                upload.put("follows", {"user": [user], "poster": [other]})
            else:
                self.follows.discard((user, other))
                upload.delete("follows", {"user": [user], "poster": [other]})
        return self._ingestor.take(upload).scu

    def rows(self) -> dict[bytes, bytes]:
        posts = {f"p|{poster}|{at:010}".encode(): body.encode() for (poster, at), body in self.posts.items()}
        return posts | {f"s|{user}|{poster}".encode(): b"" for user, poster in self.follows}

    def timeline(self, user: str) -> list[tuple[bytes, bytes]]:
        return sorted(
            (f"t|{user}|{at:010}|{poster}".encode(), body.encode())
            for (poster, at), body in self.posts.items()
            if (user, poster) in self.follows
        )
