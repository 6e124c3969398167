"""A client of a server with a folder, and the model, which are told the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

from pequod_grammar import parse
from pequod_server import PequodServer
from pequod_server.database.expiring import wall_ms

import pequod
from pequod.client import AsyncClient
from pequod.engine.testing import NaiveModel
from pequod.language.conditions import IF_ABSENT, Met
from tests.disk.folders import contents, deadlines

JOINS = """
    t|<user>|<time:3>|<poster> = check s|<user>|<poster> copy p|<poster>|<time:3>;
    posts|<poster> = count p|<poster>|<time:3>;
"""
USERS = [b"%02d" % number for number in range(20)]


class Beside:
    """A client and the model, which are told the same."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.model = NaiveModel()
        for spec in parse(JOINS):
            self.model.add(spec)
        #: The time at the servers, in milliseconds. It stands still but for `write`.
        self.now_ms = wall_ms() + 1_000_000_000
        self.model.tell(self.now_ms)

    def keep_time(self, server: PequodServer) -> None:
        """Have a server go by the time of the model."""
        server.databases.expiring.clock_ms = lambda: self.now_ms

    async def begin(self, client: AsyncClient) -> None:
        """Put so much that memory has no room for it later."""
        rows = {b"p|%b|%03d" % (user, number): self.random.randbytes(4) * 250 for user in USERS for number in range(10)}
        for first in range(0, len(rows), 20):
            await client.multi_put(dict([*rows.items()][first : first + 20]))
        for row in rows.items():
            self.model.put(*row)

    def compare(self, folder: Path) -> None:
        """Compare all that a folder has, but for keys that are due and that nobody has read since."""
        due = {key for key, at_ms in deadlines(folder).items() if at_ms <= self.now_ms}
        assert {key: value for key, value in contents(folder).items() if key not in due} == self.model.base

    def _key(self) -> bytes:
        random = self.random
        match random.randrange(6):
            case 0:
                return b"s|%b|%b" % (random.choice(USERS), random.choice(USERS))
            case 1:
                return b"n|%03d" % random.randrange(20)
            case 2:
                return b"loose%d" % random.randrange(3)
        return b"p|%b|%03d" % (random.choice(USERS), random.randrange(12))

    def _value(self, key: bytes) -> bytes:
        return b"5" if key.startswith(b"n|") else key * 100

    async def write(self, client: AsyncClient) -> None:
        random, key = self.random, self._key()
        match random.randrange(10):
            case 0:
                assert await client.remove(key) == self.model.remove(key)
            case 1:
                key = b"n|%03d" % random.randrange(20)
                assert await client.add(key, 1) is not None
                self.model.add_to(key, b"1")
            case 2:
                user = random.choice(USERS)
                first, last = b"p|%b|003" % user, b"p|%b|006" % user
                gone = [one for one in sorted(self.model.base) if first <= one < last]
                assert await client.remove_range(first, last) == len(gone)
                for one in gone:
                    self.model.remove(one)
            case 3:
                self.now_ms += random.randrange(20_000)
                self.model.tell(self.now_ms)
            case 4:
                met = self.model.write_if(key, self._value(key), IF_ABSENT)
                assert bool(await client.put(key, self._value(key), condition=IF_ABSENT)) == isinstance(met, Met)
            case 5:
                await self._transact(client, key)
            case 6:
                ttl_s = random.randrange(1, 60)
                await client.put(key, self._value(key), ttl_s=ttl_s)
                self.model.put_for(key, self._value(key), ttl_s * 1000)
            case _:
                await client.put(key, value := self._value(key))
                self.model.put(key, value)

    async def _transact(self, client: AsyncClient, key: bytes) -> None:
        """Have the value of one key decide what becomes of another."""
        decides, other = b"n|%03d" % self.random.randrange(20), self._key()
        is_five = self.model.base.get(decides) == b"5"
        held, results = await client.transaction(
            [pequod.value_of(decides) == b"5"],
            [pequod.Put(key, self._value(key)), pequod.Get(other), pequod.Count(prefix="n|")],
            [pequod.Remove(key), pequod.Get(other), pequod.Count(prefix="n|")],
        )
        done = None
        if is_five:
            self.model.put(key, self._value(key))
        else:
            done = self.model.remove(key)
        count = sum(one.startswith(b"n|") for one in self.model.base)
        assert (held, results) == (is_five, [done, self.model.base.get(other), count])

    async def look(self, client: AsyncClient) -> None:
        random = self.random
        user = random.choice(USERS)
        key = self._key()
        assert await client.get(key) == self.model.base.get(key)
        match random.randrange(4):
            case 0:
                first, last = b"t|%b|" % user, b"t|%b}" % user
            case 1:
                first, last = b"posts|%b" % user, b"posts|%b\0" % user
            case 2:
                first, last = b"p|%b|005" % user, b"p|%b}" % user
            case _:
                first, last = b"n|005", b"n|015"
        if random.random() < 0.2:
            expected = sum(one.startswith(b"p|") for one in self.model.base)
            assert await client.count(prefix="p|") == expected
        limit, reverse = random.choice((None, 3)), random.random() < 0.3
        found = await client.scan(first, last, limit=limit, reverse=reverse)
        assert found == self.model.scan(first, last, limit=limit, reverse=reverse)
