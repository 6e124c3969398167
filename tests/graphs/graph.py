"""A graph of nodes and links in SQLite and at a server, as LinkBench's and TAO's applications write it.

    node|<id>                   {"type": "1", "version": 3}
    link|<id1>|<type>|<id2>     {"visible": true, "time": "0000000017"}

The joins make of it what TAO and LinkBench keep beside: numbers of links, lists of the newest, and the links that lead
to a node. An operation that writes changes both; one that reads compares both.
"""

from __future__ import annotations

import json
import sqlite3
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from typing import Any, Final, NamedTuple

from pequod import Put, Remove
from pequod.client import Client
from tests.graphs.published import DEGREES, Mix

#: The most that LinkBench's list of links asks for is 10,000; a small graph has shorter ones.
LIMIT: Final = 10
#: A server's `transaction_commands_max`.
WRITES_MAX: Final = 128


class Table(NamedTuple):
    """A computed table, its join, and the SQL of its rows: a key without the table, and a value."""

    name: str
    join: str
    sql: str


_VISIBLE: Final = "copy link|<id1>|<type>|<id2> with visible = true, time = <time> as time"
#: What each of them is in TAO is said before it.
TABLES: Final = (
    # assoc_count
    Table(
        "links_of",
        "links_of|<id1>|<type> = count link|<id1>|<type>|<id2> with visible = true",
        "SELECT id1 || '|' || type, count(*) FROM link WHERE visible GROUP BY id1, type",
    ),
    # assoc_range and assoc_time_range, read backwards
    Table(
        "by_time",
        f"by_time|<id1>|<type>|<time:10>|<id2> = {_VISIBLE}",
        "SELECT id1 || '|' || type || '|' || time || '|' || id2, time FROM link WHERE visible",
    ),
    # What TAO's caches keep of a long list: its newest part.
    Table(
        "newest",
        f"newest|<id1>|<type>|<time:10>|<id2> = {_VISIBLE} keep last 3 of <id1>, <type>",
        "SELECT id1 || '|' || type || '|' || time || '|' || id2, time FROM (SELECT *, row_number() OVER "
        "(PARTITION BY id1, type ORDER BY time DESC, id2 DESC) AS place FROM link WHERE visible) WHERE place <= 3",
    ),
    # The inverse association
    Table(
        "links_to",
        f"links_to|<id2>|<type>|<time:10>|<id1> = {_VISIBLE}",
        "SELECT id2 || '|' || type || '|' || time || '|' || id1, time FROM link WHERE visible",
    ),
    Table(
        "followers",
        "followers|<id2>|<type> = count link|<id1>|<type>|<id2> with visible = true",
        "SELECT id2 || '|' || type, count(*) FROM link WHERE visible GROUP BY id2, type",
    ),
    # The objects at the ends of a list, fetched with it
    Table(
        "seen",
        "seen|<id1>|<type>|<time:10>|<id2> = check link|<id1>|<type>|<id2> with visible = true, time = <time> "
        "copy node|<id2> as version",
        "SELECT id1 || '|' || link.type || '|' || time || '|' || id2, version FROM link JOIN node ON node.id = id2 "
        "WHERE visible",
    ),
    # The last time of a list, by which a cache tells whether it has changed
    Table(
        "last_time",
        "last_time|<id1>|<type> = max link|<id1>|<type>|<id2> with visible = true as stamp",
        "SELECT id1 || '|' || type, max(CAST(time AS INTEGER)) FROM link WHERE visible GROUP BY id1, type",
    ),
)


class Graph:
    """The graph in both places.

    Args:
        client: Of a server.
        node_count: At the beginning; each has as many links as LinkBench's distribution says.
    """

    def __init__(self, client: Client, mix: Mix, node_count: int, seed: int) -> None:
        self._client = client
        self._mix = mix
        self._random = Random(seed)
        self._time = 0
        self.database = sqlite3.connect(":memory:", isolation_level=None)
        self.database.executescript(
            "CREATE TABLE node (id TEXT PRIMARY KEY, type TEXT, version INTEGER);"
            "CREATE TABLE link "
            "(id1 TEXT, type TEXT, id2 TEXT, visible INTEGER, time TEXT, PRIMARY KEY (id1, type, id2))"
        )
        self._ids = [self._name(number) for number in range(node_count)]
        self._next = node_count
        #: What the next call writes; None: it is removed.
        self._waiting = dict[str, str | None]()
        for table in TABLES:
            client.add_join(table.join)
        for name in self._ids:
            self._put_node(name, 0)
            for _ in range(self._degree()):
                self._put_link(name, self._type(), self._random.choice(self._ids))
        self._send()

    def take(self) -> None:
        """Draw an operation and do it."""
        names, weights = list(self._mix.operations), list(self._mix.operations.values())
        operation: Callable[[], None] = getattr(self, f"_{self._random.choices(names, weights)[0]}")
        operation()
        self._send()

    def compare(self, tables: Sequence[Table] = TABLES) -> int:
        """Compare tables whole; return how many rows they have."""
        count = 0
        for table in tables:
            expected = {key: str(value) for key, value in self.database.execute(table.sql)}
            rows = self._client.scan(f"{table.name}|", f"{table.name}}}")
            assert {key.decode().split("|", 1)[1]: value.decode() for key, value in rows} == expected, table.name
            count += len(expected)
        return count

    # The operations, by the names that `published` gives them.

    def _add_link(self) -> None:
        self._put_link(self._written(), self._type(), self._random.choice(self._ids))

    def _update_link(self) -> None:
        if (link := self._some_link()) is not None:
            self._put_link(*link)

    def _delete_link(self) -> None:
        """Hide a link, as LinkBench does, or remove it, as TAO does."""
        if (link := self._some_link()) is None:
            return
        if self._mix.name == "linkbench":
            self._put_link(*link, is_visible=False)
        else:
            self.database.execute("DELETE FROM link WHERE (id1, type, id2) = (?, ?, ?)", link)
            self._waiting["|".join(("link", *link))] = None

    def _add_node(self) -> None:
        name = self._name(self._next)
        self._next += 1
        self._ids.append(name)
        self._put_node(name, 0)

    def _update_node(self) -> None:
        name = self._written()
        self._put_node(name, self._version(name) + 1)

    def _delete_node(self) -> None:
        """Remove a node, and leave its links, as LinkBench does."""
        name = self._random.choice(self._ids)
        self.database.execute("DELETE FROM node WHERE id = ?", (name,))
        self._waiting[f"node|{name}"] = None

    def _transaction(self) -> None:
        """Write several things at one moment."""
        sizes, weights = list(self._mix.sizes), list(self._mix.sizes.values())
        for _ in range(self._random.choices(sizes, weights)[0]):
            self._random.choice((self._add_link, self._update_link, self._update_node, self._delete_link))()

    def _get_node(self) -> None:
        name = self._read()
        row = self.database.execute("SELECT type, version FROM node WHERE id = ?", (name,)).fetchone()
        found = self._client.get(f"node|{name}")
        assert (found and json.loads(found)) == (row and {"type": row[0], "version": row[1]})

    def _get_link(self) -> None:
        link = self._some_link() or (self._read(), self._type(), self._read())
        row = self.database.execute("SELECT visible, time FROM link WHERE (id1, type, id2) = (?, ?, ?)", link)
        found, expected = self._client.get("|".join(("link", *link))), row.fetchone()
        assert (found and (json.loads(found)["visible"], json.loads(found)["time"])) == expected

    def _count_links(self) -> None:
        name, kind = self._read(), self._type()
        for table, column in (("links_of", "id1"), ("followers", "id2")):
            found = self._client.get(f"{table}|{name}|{kind}")
            assert int(found or 0) == self._one(
                f"SELECT count(*) FROM link WHERE visible AND ({column}, type) = (?, ?)", name, kind
            )

    def _newest_links(self) -> None:
        """Read the newest links of a node, some of them up to a time."""
        name, kind = self._read(), self._type()
        until = self._time + 1 if self._random.random() < 0.7 else self._random.randrange(1, self._time + 1)
        rows = self._client.scan(
            f"by_time|{name}|{kind}|", f"by_time|{name}|{kind}|{until:010}", limit=LIMIT, reverse=True
        )
        expected = self.database.execute(
            "SELECT time || '|' || id2 FROM link WHERE visible AND (id1, type) = (?, ?) AND time < ? "
            f"ORDER BY time DESC, id2 DESC LIMIT {LIMIT}",
            (name, kind, f"{until:010}"),
        )
        assert [key.decode().split("|", 3)[3] for key, _ in rows] == [found for (found,) in expected]

    # What they are made of.

    @staticmethod
    def _name(number: int) -> str:
        return f"{number:06}"

    def _type(self) -> str:
        return self._random.choices(list(self._mix.types), list(self._mix.types.values()))[0]

    def _degree(self) -> int:
        drawn = self._random.random() * 100
        return next(count for count, share in DEGREES if drawn <= share)

    def _zipf(self, shape: float) -> str:
        weights = list(accumulate((at + 1) ** -shape for at in range(len(self._ids))))
        return self._ids[bisect(weights, self._random.random() * weights[-1], hi=len(weights) - 1)]

    def _read(self) -> str:
        return self._zipf(self._mix.read_shape)

    def _written(self) -> str:
        return self._zipf(self._mix.write_shape)

    def _some_link(self) -> tuple[str, str, str] | None:
        """Return a link of a node that is written often, or of another one."""
        rows = self.database.execute(
            "SELECT id1, type, id2 FROM link WHERE id1 = ? ORDER BY 1, 2, 3", (self._written(),)
        )
        found = rows.fetchall() or self.database.execute("SELECT id1, type, id2 FROM link ORDER BY 1, 2, 3").fetchall()
        return self._random.choice(found) if found else None

    def _version(self, name: str) -> int:
        return self._one("SELECT coalesce(max(version), 0) FROM node WHERE id = ?", name)

    def _one(self, sql: str, *values: str) -> int:
        (number,) = self.database.execute(sql, values).fetchone()
        assert isinstance(number, int)
        return number

    def _put_node(self, name: str, version: int) -> None:
        self.database.execute("INSERT OR REPLACE INTO node VALUES (?, '1', ?)", (name, version))
        self._put(f"node|{name}", {"type": "1", "version": version})

    def _put_link(self, id1: str, kind: str, id2: str, *, is_visible: bool = True) -> None:
        """Put a link; one whose type says that it is the only one takes the place of others, and some come in pairs."""
        self._time += 1
        time = f"{self._time:010}"
        if kind.startswith("unique"):
            others = self.database.execute(
                "SELECT id2 FROM link WHERE (id1, type) = (?, ?) AND id2 != ?", (id1, kind, id2)
            )
            for (other,) in others.fetchall():
                self.database.execute("DELETE FROM link WHERE (id1, type, id2) = (?, ?, ?)", (id1, kind, other))
                self._waiting[f"link|{id1}|{kind}|{other}"] = None
        ends = [(id1, id2), (id2, id1)] if kind == "bidirectional" else [(id1, id2)]
        for one, other in ends:
            self.database.execute(
                "INSERT OR REPLACE INTO link VALUES (?, ?, ?, ?, ?)", (one, kind, other, is_visible, time)
            )
            record = {"visible": is_visible, "time": time, "stamp": self._time}
            self._put(f"link|{one}|{kind}|{other}", record)

    def _put(self, key: str, record: dict[str, Any]) -> None:
        self._waiting[key] = json.dumps(record)

    def _send(self) -> None:
        """Write what waits at one moment."""
        writes = [Remove(key) if value is None else Put(key, value) for key, value in self._waiting.items()]
        for at in range(0, len(writes), WRITES_MAX):
            self._client.transaction([], writes[at : at + WRITES_MAX])
        self._waiting.clear()
