"""Who follows whom: the social graphs that Twip runs on.

A graph is two parallel columns, one row a subscription, sorted by user and then by poster:

    users    0 0 0 1 1 2        user 0 follows 1, 2 and 5
    posters  1 2 5 0 3 0        user 1 follows 0 and 3

>>> graph = from_edges(np.array([7, 7, 9]), np.array([9, 8, 7]))
>>> graph.user_count, graph.follower_counts().tolist()
(3, [1, 1, 1])
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pequod_installed.names import how_to_install
from pequod_workloads import twip as model
from pequod_workloads.twip import USERS_MAX

from pequod.errors import PequodError

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


class GraphError(PequodError):
    """A graph that cannot be read or made; the text says what to change."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Subscriptions among the users ``0 … user_count - 1``.

    Invariants:
        1. ``users`` and ``posters`` are of one length, every entry in ``[0, user_count)``.
        2. Rows are sorted by user, then by poster, and no row stands twice.
        3. No user follows themselves.
    """

    #: Where the graph comes from, as the report names it.
    name: str
    user_count: int
    users: Ids
    posters: Ids

    @property
    def edge_count(self) -> int:
        return len(self.users)

    def follower_counts(self) -> Ids:
        return np.bincount(self.posters, minlength=self.user_count).astype(np.int64)

    def _check(self) -> None:
        assert len(self.users) == len(self.posters)
        assert bool(np.all((self.users >= 0) & (self.users < self.user_count)))
        assert bool(np.all((self.posters >= 0) & (self.posters < self.user_count)))
        assert bool(np.all(np.diff(self.users * self.user_count + self.posters) > 0))
        assert not bool(np.any(self.users == self.posters))


def synthetic(user_count: int, rng: np.random.Generator) -> Graph:
    """Make the graph of the original benchmark: 20 to 200 follows each, a few users followed by very many.

    With fewer than 400 users no user follows more than half of them, since 200 distinct others cannot be had.
    """
    most = min(model.FOLLOWS_MAX, max(1, user_count // 2))
    weights = rng.permutation(_popularity("synthetic", user_count))
    return _draw("synthetic", rng.integers(min(model.FOLLOWS_MIN, most), most + 1, user_count), weights, rng)


def power_law(user_count: int, rng: np.random.Generator) -> Graph:
    """Make a graph whose follows and followers both have heavy tails, 40 follows on average.

    The number of follows is Pareto with a minimum of 40/3, so that its mean is 40 before it is cut at a tenth of the
    users.
    """
    most = max(1, min(user_count // 10, model.POWER_LAW_FOLLOWS_MAX))
    weights = _popularity("power-law", user_count)
    pareto = (1 + rng.pareto(model.POWER_LAW_EXPONENT, user_count)) * model.POWER_LAW_FOLLOWS_MEAN / 3
    return _draw("power-law", np.clip(np.floor(pareto), 1, most).astype(np.int64), rng.permutation(weights), rng)


def _popularity(graph: model.GraphModel, user_count: int) -> Floats:
    _require_users(user_count)
    return np.array(model.popularity(graph, user_count))


def from_edges(users: Ids, posters: Ids, name: str = "edges") -> Graph:
    """Make a graph of given subscriptions; ids are renumbered densely, in their order.

    Repeated rows count once and rows that follow themselves are left out.
    """
    ids, flat = np.unique(np.concatenate([users, posters]), return_inverse=True)
    user_count = len(ids)
    _require_users(user_count)
    dense_users, dense_posters = flat[: len(users)], flat[len(users) :]
    codes = _distinct((dense_users * user_count + dense_posters)[dense_users != dense_posters])
    return Graph(name, user_count, codes // user_count, codes % user_count)


def read_edges(path: Path) -> Graph:
    """Read a file of subscriptions, ``user<TAB>poster`` a line: plain text, ``.gz``, or ``.parquet``.

    Lines that start with ``#`` are comments; the two ids may also stand apart by spaces. Of a Parquet file
    the first two columns are taken.

    Raises:
        GraphError: The file is not there or is not of this form.
    """
    try:
        if path.suffix == ".parquet":
            users, posters = _read_parquet(path)
        else:
            # It takes what ends with .gz apart by itself.
            users, posters = np.loadtxt(path, dtype=np.int64, usecols=(0, 1), ndmin=2).T
    except FileNotFoundError as error:
        raise GraphError(f"there is no graph file {str(path)!r}") from error
    except (OSError, ValueError, EOFError) as error:
        raise GraphError(
            f"{str(path)!r} is not a file of subscriptions (a line is user<TAB>poster, in numbers): {error}"
        ) from error
    return from_edges(users, posters, path.name)


def _read_parquet(path: Path) -> Ids:
    try:
        from pyarrow import parquet  # noqa: PLC0415 -- optional
    except ImportError as error:
        raise GraphError(f"reading a Parquet graph needs pyarrow: {how_to_install('files')}") from error
    table = parquet.read_table(path)
    if table.num_columns < 2:
        raise ValueError("fewer than two columns")
    return np.array([table.column(i).to_numpy() for i in (0, 1)], dtype=np.int64)


def make_graph(choice: str, user_count: int, rng: np.random.Generator) -> Graph:
    """Make the graph that the command line names: ``synthetic``, ``power-law`` or a file."""
    if choice == "synthetic":
        return synthetic(user_count, rng)
    if choice == "power-law":
        return power_law(user_count, rng)
    return read_edges(Path(choice))


def _require_users(user_count: int) -> None:
    if not 2 <= user_count <= USERS_MAX:
        raise GraphError(f"a graph needs between 2 and {USERS_MAX} users, not {user_count}")


def _draw(name: str, follow_counts: Ids, weights: Floats, rng: np.random.Generator) -> Graph:
    """Let every user follow ``follow_counts[user]`` distinct others, drawn one after another by weight.

    All users draw at once: each round draws exactly what each of them still lacks and throws away what they
    already have. Since no round draws more than is lacking, the distribution is that of drawing one by one.
    """
    user_count = len(follow_counts)
    cumulative = np.cumsum(weights)
    codes = np.empty(0, dtype=np.int64)
    lacking = follow_counts
    while (needy := np.flatnonzero(lacking)).size:
        users = np.repeat(needy, lacking[needy])
        posters = np.searchsorted(cumulative, rng.random(len(users)) * cumulative[-1], side="right")
        drawn = _distinct((users * user_count + posters)[posters != users])
        places = np.searchsorted(codes, drawn)
        is_new = np.ones(len(drawn), dtype=bool)
        inside = places < len(codes)
        is_new[inside] = codes[places[inside]] != drawn[inside]
        codes = np.insert(codes, places[is_new], drawn[is_new])
        lacking = lacking - np.bincount(drawn[is_new] // user_count, minlength=user_count)
    return Graph(name, user_count, codes // user_count, codes % user_count)


def _distinct(codes: Ids) -> Ids:
    """Return the codes in order, each once; `np.unique` hashes: 2.3 s for 2.2 M codes, not 0.1 s."""
    ordered: Ids = np.sort(codes)
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct: Ids = ordered[is_first]
    return distinct
