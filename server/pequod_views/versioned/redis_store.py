"""A record store of Redis servers that know nothing of each other, each a replica. Needs the extra redis.

    cells <table> <key>      a hash: the column -> the timestamp in 20 digits, and `=` and the text, or nothing for NULL
    keys <table>             a sorted set of the keys of the table's records
    register <name>          a hash: promised, accepted, value

A script writes a cell if it is larger than the one that is there, byte by byte: the newer one, and at a tie the one
with the larger value. Texts in names of Redis's keys and columns have their lengths in bytes before them.

A server must not forget what it has acknowledged, or leases and majorities are worth nothing: `appendonly yes`, with
`appendfsync always` where power may fail, and no `maxmemory` that evicts. A server that was away for long has less than
the others; `spread` brings it what it lacks.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Sequence
from typing import Final, TypeAlias, cast

import redis.asyncio
from redis.exceptions import RedisError

from pequod_views.versioned.quorums import Quorums
from pequod_views.versioned.records import Cells, KeyPage, Put, StoredCell, StoredColumn, merge
from pequod_views.versioned.registers import BallotRequest, Ballots, Prepare, Vote, swap_at_replicas
from pequod_views.versioned.replicas import (
    ReplicaId,
    ReplicaRefusedError,
    refuse_duration,
    refuse_twice,
    replica_of,
    shown,
)
from pequod_views.versioned.scanning import KeyScan

Server: TypeAlias = "redis.asyncio.Redis"

_DIGITS: Final = 20
_CONNECTIONS_MAX: Final = 64
# `a > b` goes by the locale of the server.
_LARGER: Final = """
local function larger(a, b)
    for at = 1, math.min(#a, #b) do
        local one, other = a:byte(at), b:byte(at)
        if one ~= other then return one > other end
    end
    return #a > #b
end
"""
_PUT: Final = f"""{_LARGER}
for at = 2, #ARGV, 2 do
    local there = redis.call('HGET', KEYS[1], ARGV[at])
    if not there or larger(ARGV[at + 1], there) then redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 1]) end
end
redis.call('ZADD', KEYS[2], 0, ARGV[1])
"""
_FORGET: Final = f"""{_LARGER}
for at = 2, #ARGV, 2 do
    local there = redis.call('HGET', KEYS[1], ARGV[at])
    if there and not larger(there:sub(1, {_DIGITS}), ARGV[at + 1]) then redis.call('HDEL', KEYS[1], ARGV[at]) end
end
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[1]) end
"""
_PREPARE: Final = f"""{_LARGER}
local promised = redis.call('HGET', KEYS[1], 'promised') or ''
if not larger(ARGV[1], promised) then return {{0, promised, ''}} end
redis.call('HSET', KEYS[1], 'promised', ARGV[1])
return {{1, redis.call('HGET', KEYS[1], 'accepted') or '', redis.call('HGET', KEYS[1], 'value') or ''}}
"""
_ACCEPT: Final = f"""{_LARGER}
local promised = redis.call('HGET', KEYS[1], 'promised') or ''
if larger(promised, ARGV[1]) then return {{0, promised, ''}} end
redis.call('HSET', KEYS[1], 'promised', ARGV[1], 'accepted', ARGV[1], 'value', ARGV[2])
return {{1, ARGV[1], ARGV[2]}}
"""


class RedisReplicas:
    """Replicas in Redis servers.

    Args:
        urls: Such as `redis://host:6379/0`, one for each replica, in any order.
        timeout_s: How long a server may take before it counts as away.

    Raises:
        ReplicaRefusedError: A server is there twice, or a URL is malformed.
        SettingError: The timeout is no number of seconds.
    """

    def __init__(self, urls: Sequence[str], *, timeout_s: float = 2.0) -> None:
        refuse_duration("timeout_s", timeout_s, least_s=0.001)
        refuse_twice(list(map(replica_of, urls)), urls)
        self.replica_count = len(urls)
        self._names = list(map(shown, urls))
        #: The numbers of the replicas that this process is not to ask.
        self.down: set[int] = set()
        self._servers: Quorums[Server] = Quorums(
            [_server(url, timeout_s) for url in urls], self._names, RedisError, OSError, TimeoutError
        )
        self._ballots = Ballots(uuid.uuid4().hex)

    async def close(self) -> None:
        """Wait for what is under way, and disconnect."""
        await self._servers.settle()
        for server in self._servers.replicas:
            await server.aclose()

    async def refuse_same(self) -> None:
        """Pass if no two of the servers that answer are one server with two names.

        Raises:
            ReplicaRefusedError: Two are.
        """
        places = await asyncio.gather(*map(_place_of, self._servers.replicas))
        known = [(place, name) for place, name in zip(places, self._names, strict=True) if place[0]]
        refuse_twice([place for place, _ in known], [name for _, name in known])

    async def get(self, table: str, key: str, columns: Sequence[StoredColumn] | None, quorum: int) -> Cells:
        """Return the newest of each cell."""
        place, names = _place(table, key), None if columns is None else [_name(*column) for column in columns]

        async def read(server: Server) -> dict[StoredColumn, StoredCell]:
            if names is None:
                found = await cast("Awaitable[dict[bytes, bytes]]", server.hgetall(place))
                return {_column(name): _cell(cell) for name, cell in found.items()}
            cells = await cast("Awaitable[list[bytes | None]]", server.hmget(place, names))
            return {one: _cell(cell) for one, cell in zip(columns or (), cells, strict=True) if cell is not None}

        merged: dict[StoredColumn, StoredCell] = {}
        for cells in await self._servers.ask(read, quorum, self.down):
            merge(merged, cells)
        return merged

    async def put(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Write cells."""
        await self._run(_PUT, table, key, _texts(cells), quorum)

    async def put_all(self, puts: Sequence[Put], quorum: int) -> None:
        """Write cells of several records; a server has them one after the other."""
        records = [(put.table, put.key, _texts(dict(put.cells))) for put in puts]

        async def run(server: Server) -> None:
            async with server.pipeline(transaction=False) as pipeline:
                for table, key, texts in records:
                    pipeline.eval(_PUT, 2, *_places(table, key), key.encode(), *texts)
                await pipeline.execute()

        await self._servers.ask(run, quorum, self.down)

    async def forget(self, table: str, key: str, cells: Cells, quorum: int) -> None:
        """Remove cells."""
        texts = [
            text for column, cell in cells.items() for text in (_name(*column), b"%0*d" % (_DIGITS, cell.timestamp))
        ]
        await self._run(_FORGET, table, key, texts, quorum)

    async def _run(self, script: str, table: str, key: str, texts: list[bytes], quorum: int) -> None:
        async def run(server: Server) -> None:
            await cast("Awaitable[object]", server.eval(script, 2, *_places(table, key), key.encode(), *texts))

        await self._servers.ask(run, quorum, self.down)

    async def keys(self, table: str, after: str | None, count: int) -> KeyPage:
        """Return the first keys of a table after one."""
        begin = b"-" if after is None else b"(" + after.encode()

        async def read(server: Server) -> list[bytes]:
            found = server.zrangebylex(b"keys " + table.encode(), begin, b"+", start=0, num=count)
            return await cast("Awaitable[list[bytes]]", found)

        pages = await self._servers.ask_all(read, self.replica_count // 2 + 1, self.down)
        keys = sorted({key for page in pages for key in page})[:count]
        return KeyPage([key.decode() for key in keys], self.replica_count - len(pages))

    async def swap(self, register: str, old: str | None, new: str | None) -> str | None:
        """Set a register if it has another value."""
        place = b"register " + register.encode()

        def ask(request: BallotRequest) -> Awaitable[list[Vote]]:
            async def vote(server: Server) -> Vote:
                if isinstance(request, Prepare):
                    answer = server.eval(_PREPARE, 1, place, request.ballot)
                else:
                    value = b"" if request.value is None else b"=" + request.value.encode()
                    answer = server.eval(_ACCEPT, 1, place, request.ballot, value)
                is_given, ballot, found = await cast("Awaitable[tuple[int, bytes, bytes]]", answer)
                return Vote(bool(is_given), ballot.decode(), found[1:].decode() if found else None)

            return self._servers.ask(vote, self.replica_count // 2 + 1, self.down)

        return await swap_at_replicas(ask, register, old, new, self._ballots)

    async def spread(self, table: str) -> None:
        """Bring the replicas of a table that can be reached to one state (anti-entropy), such as after one returned."""
        up = self.replica_count - len(self.down)
        async for key in KeyScan(self, table):
            await self.put(table, key, await self.get(table, key, None, up), up)


def _server(url: str, timeout_s: float) -> Server:
    try:
        pool = redis.asyncio.BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS_MAX,
            timeout=timeout_s,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # A request of which nobody knows whether it arrived is the caller's to send again.
            retry=None,
        )
        # It does not connect yet, and finds settings that there are not.
        pool.make_connection()  # type: ignore[no-untyped-call]
    except TypeError as error:
        raise ReplicaRefusedError(shown(url), "a setting in it is none of Redis") from error
    except ValueError as error:
        raise ReplicaRefusedError(shown(url), str(error)) from error
    return redis.asyncio.Redis.from_pool(pool)


async def _place_of(server: Server) -> ReplicaId:
    """Return the name that a server gives itself, and the number of the database; nothing if it does not say it."""
    try:
        found = await server.info("server")
    except (RedisError, OSError, TimeoutError):
        return "", ""
    return str(found.get("run_id", "")), str(server.connection_pool.connection_kwargs.get("db", 0))


def _place(table: str, key: str) -> bytes:
    return b"cells " + _name(table, key)


def _places(table: str, key: str) -> tuple[bytes, bytes]:
    """Return where a record is, and where the keys of its table are."""
    return _place(table, key), b"keys " + table.encode()


def _name(first: str, second: str) -> bytes:
    text = first.encode()
    return b"%d %s%s" % (len(text), text, second.encode())


def _column(name: bytes) -> StoredColumn:
    length, texts = name.split(b" ", 1)
    at = int(length)
    return StoredColumn(texts[:at].decode(), texts[at:].decode())


def _texts(cells: Cells) -> list[bytes]:
    """Return cells as the script that writes them has them."""
    return [text for column, cell in cells.items() for text in (_name(*column), _text(cell))]


def _text(cell: StoredCell) -> bytes:
    return b"%0*d%s" % (_DIGITS, cell.timestamp, b"" if cell.value is None else b"=" + cell.value.encode())


def _cell(text: bytes) -> StoredCell:
    value = text[_DIGITS:]
    return StoredCell(value[1:].decode() if value else None, int(text[:_DIGITS]))
