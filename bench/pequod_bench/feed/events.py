"""What users do, drawn from one seed: statements for the database, and calls of an application that keeps feeds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from pequod_workloads.twip import popularity

SERVERS: Final = 20
_FOLLOW: Final = """INSERT INTO follows SELECT %(me)s, %(who)s WHERE NOT EXISTS (SELECT FROM blocks
    WHERE (account_id, target_account_id) IN ((%(me)s, %(who)s), (%(who)s, %(me)s))) ON CONFLICT DO NOTHING"""
_UNFOLLOW: Final = "DELETE FROM follows WHERE account_id = %(me)s AND target_account_id = %(who)s"
_UNLIST: Final = "DELETE FROM list_accounts WHERE owner_id = %(me)s AND account_id = %(who)s AND NOT is_owner"
_OF_SERVER: Final = "(SELECT id FROM accounts WHERE domain_id = %(server)s AND id <> %(me)s)"
_REVERSED: Final = [
    each.replace("me", "tmp").replace("who", "me").replace("tmp", "who") for each in (_UNFOLLOW, _UNLIST)
]


class Event(NamedTuple):
    """One thing that a user does."""

    #: What it is for an application that keeps feeds: the name of a `RedisFeed` method, or nothing.
    name: str
    arguments: tuple[Any, ...]
    #: Of one transaction, all with the same values.
    statements: list[str]
    values: dict[str, Any]


class Events:
    """Draws events, and knows of the statuses what it needs for that."""

    def __init__(self, users: int, follows: int, seed: int) -> None:
        self._random = Random(seed)
        self.users = range(users)
        self._weights = popularity("power-law", users)
        self._random.shuffle(self._weights)
        self._follows = follows
        self.last_id = 0
        #: Statuses that are there and no boosts, with their authors; those that boost them.
        self._statuses: dict[int, int] = {}
        self._boosts: dict[int, list[tuple[int, int]]] = {}
        self._order: list[int] = []
        self._kinds: list[tuple[Callable[[dict[str, Any]], Event | None], float]] = [
            (self._post, 45), (self._reply, 22), (self._boost, 20), (self._edit, 2), (self._delete, 2),
            (self._follow, 3), (self._unfollow, 2), (self._mute, 0.7), (self._unmute, 0.5), (self._block, 0.4),
            (self._unblock, 0.3), (self._silence, 0.1), (self._unsilence, 0.1), (self._hide_boosts, 0.5),
            (self._list, 1), (self._unlist, 0.5),
        ]  # fmt: skip
        self._chances = [chance for _, chance in self._kinds]

    def population(self) -> list[tuple[str, list[tuple[Any, ...]]]]:
        """Return the rows that are there at the start, by the table and its columns: everybody owns one list."""
        random, users = self._random, self.users
        follows = {(user, user) for user in users}
        for user in users:
            follows |= {(user, who) for who in self._popular(random.randint(self._follows // 2, self._follows * 2))}
        members = [(user, user, user, True) for user in users]
        some = sorted((user, user, who, False) for user, who in follows if user != who and random.random() < 0.1)
        return [
            ("accounts (id, domain_id)", [(user, max(0, random.randint(-SERVERS, SERVERS))) for user in users]),
            ("follows (account_id, target_account_id)", sorted(follows)),
            ("lists", [(user, user, random.choice(["followed", "list"])) for user in users]),
            ("list_accounts", members + some),
        ]

    def draw(self) -> Event:
        while True:
            (kind,) = self._random.choices(self._kinds, self._chances)
            me, who = self._popular(1)[0], self._popular(1)[0]
            values = {"me": me, "who": who, "server": self._random.randint(1, SERVERS)}
            if me != who and (event := kind[0](values)) is not None:
                return event

    def is_page(self, chance: float) -> bool:
        return self._random.random() < chance

    def reader(self) -> int:
        """Return a user who looks at pages: some do so often, most rarely."""
        return int(len(self.users) * self._random.random() ** 4)

    def _popular(self, count: int) -> list[int]:
        return self._random.choices(self.users, self._weights, k=count)

    def _status(self, values: dict[str, Any], **columns: Any) -> Event:
        self.last_id += 1
        columns = {"id": self.last_id, "account_id": values["me"], "text": f"{self.last_id} " + "x" * 140} | columns
        if columns.get("reblog_of_id") is None:
            self._statuses[self.last_id] = values["me"]
            self._order.append(self.last_id)
        names = ", ".join(columns)
        statement = f"INSERT INTO statuses ({names}) VALUES ({', '.join(f'%({name})s' for name in columns)})"
        return Event("push", (self.last_id,), [statement], columns)

    def _recent(self) -> int | None:
        """Return a status that is there, mostly one of the latest."""
        for _ in range(10):
            back = int(len(self._order) * self._random.random() ** 4)
            if self._order and (id_ := self._order[-1 - back]) in self._statuses:
                return id_
        return None

    def _post(self, values: dict[str, Any]) -> Event:
        return self._status(values)

    def _reply(self, values: dict[str, Any]) -> Event | None:
        id_ = self._recent()
        return None if id_ is None else self._status(values, in_reply_to_account_id=self._statuses[id_])

    def _boost(self, values: dict[str, Any]) -> Event | None:
        id_ = self._recent()
        if id_ is None:
            return None
        self._boosts.setdefault(id_, []).append((self.last_id + 1, values["me"]))
        return self._status(values, text="", reblog_of_id=id_)

    def _edit(self, values: dict[str, Any]) -> Event | None:
        values |= {"id": self._recent(), "text": f"edited {self._random.random()}"}
        return Event("", (), ["UPDATE statuses SET text = %(text)s WHERE id = %(id)s"], values)

    def _delete(self, _values: dict[str, Any]) -> Event | None:
        id_ = self._recent()
        if id_ is None:
            return None
        gone = [(id_, self._statuses.pop(id_)), *self._boosts.pop(id_, [])]
        ids, authors = [one[0] for one in gone], [one[1] for one in gone]
        return Event(
            "retract", (ids, authors), ["UPDATE statuses SET deleted_at = 1 WHERE id = ANY(%(ids)s)"], {"ids": ids}
        )

    def _follow(self, values: dict[str, Any]) -> Event:
        return Event("merge", (values["me"], values["who"]), [_FOLLOW], values)

    def _unfollow(self, values: dict[str, Any]) -> Event:
        return Event("unmerge", (values["me"], values["who"]), [_UNFOLLOW, _UNLIST], values)

    def _mute(self, values: dict[str, Any]) -> Event:
        statement = "INSERT INTO mutes VALUES (%(me)s, %(who)s) ON CONFLICT DO NOTHING"
        return Event("unmerge", (values["me"], values["who"]), [statement], values)

    def _unmute(self, values: dict[str, Any]) -> Event:
        return self._undo("mutes", values)

    def _block(self, values: dict[str, Any]) -> Event:
        statement = "INSERT INTO blocks VALUES (%(me)s, %(who)s) ON CONFLICT DO NOTHING"
        return Event("part", (values["me"], values["who"]), [statement, _UNFOLLOW, _UNLIST, *_REVERSED], values)

    def _unblock(self, values: dict[str, Any]) -> Event:
        return self._undo("blocks", values)

    def _undo(self, table: str, values: dict[str, Any]) -> Event:
        """Take back the first one of the user."""
        one = f"(SELECT min(target_account_id) FROM {table} WHERE account_id = %(me)s)"
        statement = f"DELETE FROM {table} WHERE account_id = %(me)s AND target_account_id = {one}"
        return Event("regain", (values["me"],), [statement], values)

    def _silence(self, values: dict[str, Any]) -> Event:
        statements = ["INSERT INTO account_domain_blocks VALUES (%(me)s, %(server)s) ON CONFLICT DO NOTHING"]
        statements.append(f"DELETE FROM follows WHERE account_id = %(me)s AND target_account_id IN {_OF_SERVER}")
        statements.append(f"DELETE FROM list_accounts WHERE owner_id = %(me)s AND account_id IN {_OF_SERVER}")
        return Event("regain", (values["me"],), statements, values)

    def _unsilence(self, values: dict[str, Any]) -> Event:
        statement = "DELETE FROM account_domain_blocks WHERE account_id = %(me)s AND domain_id = %(server)s"
        return Event("regain", (values["me"],), [statement], values)

    def _hide_boosts(self, values: dict[str, Any]) -> Event:
        statement = """UPDATE follows SET show_reblogs = NOT show_reblogs
            WHERE account_id = %(me)s AND target_account_id = %(who)s"""
        return Event("regain", (values["me"],), [statement], values)

    def _list(self, values: dict[str, Any]) -> Event:
        statement = """INSERT INTO list_accounts SELECT %(me)s, %(me)s, %(who)s FROM follows
            WHERE account_id = %(me)s AND target_account_id = %(who)s ON CONFLICT DO NOTHING"""
        return Event("", (), [statement], values)

    def _unlist(self, values: dict[str, Any]) -> Event:
        return Event("", (), [_UNLIST], values)
