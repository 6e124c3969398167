"""The client that checks, all the time, that what it reads is exact; it alone writes the tables `s` and `p`."""

import asyncio
import random
from dataclasses import dataclass, field

from pequod import AsyncClient
from pequod.engine import Rows
from tests.soak.held import ANSWER_S_MAX

JOIN = "t|<user>|<time:4>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>"
_USERS = 12
_TIMES = 60


@dataclass
class Honest:
    """Writes, reads, watches, and what all of it must give."""

    client: AsyncClient
    seed: int
    follows: set[tuple[str, str]] = field(default_factory=set)
    posts: dict[tuple[str, str], str] = field(default_factory=dict)
    #: The watched timelines, kept from events alone.
    mirror: dict[bytes, bytes] = field(default_factory=dict)
    mirror_revision: int = 0
    rounds: int = 0
    reads: int = 0

    async def run(self, until: asyncio.Event) -> None:
        """Check until told to end, and remove what was written.

        Raises:
            AssertionError: Something was not as it must be.
            PequodError: A call failed.
        """
        draw = random.Random(self.seed)
        news = asyncio.Condition()
        watching = asyncio.create_task(self._watch(news))
        try:
            while not until.is_set():
                await self._round(draw)
                await self._compare_mirror(watching, news, draw)
                self.rounds += 1
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def timelines(self, prefix: str = "t|") -> dict[bytes, bytes]:
        """Return the computed rows under a prefix, from scratch."""
        rows = {
            f"t|{user}|{time}|{poster}": value
            for user, followed in self.follows
            for (poster, time), value in self.posts.items()
            if poster == followed
        }
        return {key.encode(): rows[key].encode() for key in sorted(rows) if key.startswith(prefix)}

    async def _round(self, draw: random.Random) -> None:
        """Send one batch of writes and reads; each read sees the writes before it."""
        batch = self.client.batch()
        expected: list[object] = []
        for _ in range(20):
            user, poster = (f"u{draw.randrange(_USERS):02}" for _ in range(2))
            time = f"{draw.randrange(_TIMES):04}"
            kind = draw.random()
            if kind < 0.25:
                batch.put(f"p|{poster}|{time}", value := str(draw.random()))
                self.posts[poster, time] = value
                expected.append(None)
            elif kind < 0.4:
                batch.remove(f"p|{poster}|{time}")
                expected.append(self.posts.pop((poster, time), None) is not None)
            elif kind < 0.5:
                batch.put(f"s|{user}|{poster}", "")
                self.follows.add((user, poster))
                expected.append(None)
            elif kind < 0.6:
                batch.remove(f"s|{user}|{poster}")
                expected.append((user, poster) in self.follows)
                self.follows.discard((user, poster))
            else:
                batch.scan(f"t|{user}|", f"t|{user}}}")
                rows = self.timelines(f"t|{user}|")
                expected.append(Rows(list(rows), list(rows.values())))
                self.reads += 1
        assert await batch.send() == expected

    async def _watch(self, news: asyncio.Condition) -> None:
        async for event in self.client.watch("t|", "t}", rows=True):
            if event.rows is not None:
                self.mirror.update(zip(*event.rows, strict=True))
            for key, old, new in event.changes:
                assert self.mirror.get(key) == old, (key, old, new)
                if new is None:
                    del self.mirror[key]
                else:
                    self.mirror[key] = new
            async with news:
                self.mirror_revision = event.revision
                news.notify_all()

    async def _compare_mirror(self, watching: asyncio.Task[None], news: asyncio.Condition, draw: random.Random) -> None:
        """Change a timeline, wait until the watch tells of it, and compare."""
        self.follows.add(("u00", "u01"))
        self.posts["u01", "0000"] = str(draw.random())
        await self.client.put("s|u00|u01", "")
        await self.client.put("p|u01|0000", self.posts["u01", "0000"])
        revision = self.client.revision
        async with asyncio.timeout(ANSWER_S_MAX), news:
            while self.mirror.get(b"t|u00|0000|u01") != self.posts["u01", "0000"].encode():
                if watching.done():
                    await watching
                await news.wait()
        assert self.mirror == self.timelines(), revision
