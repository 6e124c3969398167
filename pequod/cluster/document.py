r'''The state of a cluster as text, in TOML: of the coordinator `static`, and of maps that operators edit.

Keys are text in which `\\` begins an escape, as `pequod.escapes.escaped` writes them.

>>> state = read("""
... cluster = "twip"
... version = 1
... [[servers]]
... id = "h1"
... address = "10.0.0.1:7744"
... group = "a"
... """)
>>> state.servers[0].group, read(written(state)) == state
('a', True)
'''

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pequod.cluster.grouping import LEVEL, READ_SPREAD
from pequod.cluster.map import ClusterMap, ClusterState, HomeRange, Placement
from pequod.cluster.servers import ServerEntry, ServerRole, ServerState
from pequod.errors import ClusterMapError
from pequod.escapes import escaped, unescaped

#: A map to start from.
TEMPLATE: Final = '''\
# The map of a Pequod cluster. Give a changed map a greater version.
cluster = "pequod"
version = 1

# The joins that every server installs.
joins = """
t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time>;
"""

# Reads go to the owner of their group: the table and the first `level` slots of a key (1 without a placement). The
# longest prefix counts. Level 0: one server has the whole table. `read_spread`: this number of servers share the reads
# of a group, and each computes it.
# [[placements]]
# prefix = "top|"
# level = 0
# read_spread = 2

# Which home group owns which base keys, from `first` to `last`, excluded; without `last` to the end. They are disjoint
# and in order. While `moves_to` names another group, writes of the range are refused; `copies_to` is the group to which
# `pequod cluster move` copies rows meanwhile, and `move` names that command.
[[home_ranges]]
first = ""
group = "a"

# One for each server. A home names its group; a server that clients read is a compute; beside its own database it is
# both. `weight` (1.0) is its share of the groups, `zone` says where it is, `state` is joining, ready or draining.
[[servers]]
id = "s1"
address = "127.0.0.1:7744"
roles = ["home", "compute"]
group = "a"
'''

#: What a table says, by the names of its members; None: the member is left out.
Members = Mapping[str, Any]

_MULTILINE: Final = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f]*")
_MISSING: Final = object()


def read(text: str) -> ClusterState:
    """Return the state that a text says.

    Raises:
        ClusterMapError: With the place and the fault.
    """
    try:
        whole = _Table("the map", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ClusterMapError("the map", f"it is no TOML: {error}") from None
    placements = [
        Placement(part.key("prefix"), part.whole("level", LEVEL), part.whole("read_spread", READ_SPREAD))
        for part in whole.parts("placements", "prefix", "level", "read_spread")
    ]
    home_ranges = [
        HomeRange(
            part.key("first", b""),
            part.end("last"),
            part.text("group"),
            part.text("moves_to", ""),
            part.text("copies_to", ""),
            part.whole("move", 0),
        )
        for part in whole.parts("home_ranges", "first", "last", "group", "moves_to", "copies_to", "move")
    ]
    servers = [
        ServerEntry(
            part.text("id"),
            part.text("address"),
            part.roles(),
            part.text("group", ""),
            part.number("weight", 1.0),
            part.text("zone", ""),
            part.state(),
        )
        for part in whole.parts("servers", "id", "address", "roles", "group", "weight", "zone", "state")
    ]
    cluster_map = ClusterMap(
        whole.text("cluster"),
        whole.whole("version"),
        whole.text("joins", ""),
        tuple(sorted(placements, key=lambda placement: placement.prefix)),
        tuple(home_ranges),
    )
    whole.refuse_others("cluster", "version", "joins", "placements", "home_ranges", "servers")
    return ClusterState.of(cluster_map, servers)


def written(state: ClusterState) -> str:
    """Return the text of a state; what is as the default says is left out."""
    return "\n".join(_lines(state)) + "\n"


def _lines(state: ClusterState) -> Iterator[str]:
    known = state.map
    yield f"cluster = {_quoted(known.cluster)}"
    yield f"version = {known.version}"
    if known.joins:
        yield f"joins = {_long(known.joins)}"
    for name, tables in tables_of(state).items():
        for members in tables:
            yield f"\n[[{name}]]"
            for member, value in members.items():
                if value is not None:
                    yield f"{member} = {_value(value)}"


def tables_of(state: ClusterState) -> dict[str, list[Members]]:
    """Return what the arrays of tables in the text of a state say, by their names; defaults are None."""
    return {
        "placements": [
            {"prefix": escaped(one.prefix), "level": one.level, "read_spread": one.read_spread}
            for one in state.map.placements
        ],
        "home_ranges": [
            {
                "first": escaped(one.first),
                "last": None if one.last is None else escaped(one.last),
                "group": one.group,
                "moves_to": one.moves_to or None,
                "copies_to": one.copies_to or None,
                "move": one.move or None,
            }
            for one in state.map.home_ranges
        ],
        "servers": [
            {
                "id": one.id,
                "address": one.address,
                "roles": [str(role) for role in sorted(one.roles, reverse=True)],
                "group": one.group or None,
                "weight": None if one.weight == 1.0 else one.weight,
                "zone": one.zone or None,
                "state": None if one.is_ready else str(one.state),
            }
            for one in state.servers
        ],
    }


def _value(value: str | float | list[str]) -> str:
    match value:
        case str():
            return _quoted(value)
        case list():
            return f"[{', '.join(map(_quoted, value))}]"
        case _:
            return repr(value)


def _quoted(text: str) -> str:
    # TOML's basic strings have the escapes of JSON, and do not take this character as it is.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _long(text: str) -> str:
    """Return a text of several lines as it is, if TOML takes it."""
    if "\n" in text and "'''" not in text and not text.endswith("'") and _MULTILINE.fullmatch(text):
        return f"'''\n{text}'''"
    return _quoted(text)


class _Table:
    """A table of TOML, whose members are asked for by name and kind."""

    def __init__(self, place: str, members: Mapping[str, Any]) -> None:
        self._place = place
        self._members = members

    def text(self, name: str, default: str | None = None) -> str:
        value: str = self._member(name, str, "a text in quotes", _MISSING if default is None else default)
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        value: int = self._member(name, int, "a whole number", _MISSING if default is None else default)
        return value

    def number(self, name: str, default: float) -> float:
        return float(self._member(name, (int, float), "a number", default))

    def key(self, name: str, default: bytes | None = None) -> bytes:
        text = self.text(name, None if default is None else escaped(default))
        try:
            return unescaped(text)
        except ValueError as error:
            raise self._fault(name, str(error)) from None

    def end(self, name: str) -> bytes | None:
        return self.key(name) if name in self._members else None

    def roles(self) -> frozenset[ServerRole]:
        names = self._member("roles", list, "a list of `home` and `compute`", list(ServerRole))
        return frozenset(ServerRole(self._one_of("roles", list(ServerRole), name)) for name in names)

    def state(self) -> ServerState:
        return ServerState(self._one_of("state", list(ServerState), self.text("state", ServerState.READY)))

    def parts(self, name: str, *members: str) -> Iterator[_Table]:
        """Yield the tables of an array, each with these members at most."""
        for number, part in enumerate(self._member(name, list, f"tables: write [[{name}]]", []), 1):
            if not isinstance(part, dict):
                raise self._fault(name, f"it has to be tables: write [[{name}]]")
            table = _Table(f"{name}, number {number}", part)
            table.refuse_others(*members)
            yield table

    def refuse_others(self, *members: str) -> None:
        for name in self._members:
            if name not in members:
                raise self._fault(name, f"there is no such member; there are {', '.join(members)}")

    def _one_of(self, name: str, names: Sequence[str], value: str) -> str:
        if value not in names:
            raise self._fault(name, f"{value!r} is none of {', '.join(names)}")
        return value

    def _member(self, name: str, kind: type | tuple[type, ...], what: str, default: object) -> Any:
        value = self._members.get(name, default)
        if value is _MISSING:
            raise self._fault(name, "it is missing")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self._fault(name, f"it has to be {what}")
        return value

    def _fault(self, name: str, reason: str) -> ClusterMapError:
        return ClusterMapError(f"{self._place}, {name}", reason)
