"""What servers of several home groups may answer: their tokens' states, and what sessions saw and wrote, over moves.

token     rows of each group as of the token's position, those that the server's map gives to the group, and the joins
session   no key goes back to a version before one that the session saw or wrote, whichever group has it by then

A version of a key is a commit of a client's write. What a move copies is no version, and nor is what it removes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pequod_grammar import parse
from pequod_server.backing import RowChange
from pequod_server.cluster.joins import specs_of

from pequod.engine import JoinSpec
from pequod.engine.testing import NaiveModel
from pequod.freshness import NO_TOKEN, Token
from tests.simulation.database import Database, Rows
from tests.simulation.decided import Add, Decided
from tests.simulation.members import Server, history_name
from tests.simulation.oracle import WrongError
from tests.simulation.registry import Registry

Found = Sequence[tuple[bytes, bytes]]
Bounds = tuple[bytes, bytes]


@dataclass
class Session:
    """The session of one client."""

    token: Token = NO_TOKEN
    #: By keys, the version that it saw or wrote last.
    seen: dict[bytes, int] = field(default_factory=dict)

    def take_over(self, other: Session) -> None:
        """Know what another session knows, too."""
        self.token = self.token.merged(other.token)
        for key, at in other.seen.items():
            self.seen[key] = max(at, self.seen.get(key, 0))


class Truth:
    """The history of all keys, and what may be said of it.

    Args:
        databases: By their groups.
        removed: Groups with keys that a move removes there now.
        registry: It knows the maps that there were: a compute has the joins of one of them.

    Attributes:
        versions: By keys, the values that clients committed, in order; None: it was removed. The first is None.
    """

    def __init__(
        self, databases: Mapping[str, Database], removed: Collection[tuple[str, bytes]], registry: Registry
    ) -> None:
        self._databases = databases
        self._registry = registry
        self._removed = removed
        self.versions: dict[bytes, list[bytes | None]] = {}
        self.checked = 0
        for group, one in databases.items():
            self._follow(group, one)

    def _follow(self, group: str, database: Database) -> None:
        commit = database.commit

        def noted(changes: Sequence[RowChange]) -> int:
            for change in changes:
                self._note(group, change)
            return commit(changes)

        database.commit = noted  # type: ignore[method-assign]

    def _note(self, group: str, change: RowChange) -> None:
        versions = self.versions.setdefault(change.key, [None])
        is_copied = change.value in versions if change.value else (group, change.key) in self._removed
        if not is_copied:
            versions.append(change.value)

    def present(self) -> Rows:
        """Return the rows that there are: the last version of each key."""
        return {key: value for key, versions in self.versions.items() if (value := versions[-1]) is not None}

    def count_of(self, key: bytes) -> int:
        """Return how many versions a key has: a write that begins now makes one of this number or of a higher one."""
        return len(self.versions.get(key, [None]))

    def version_of(self, change: RowChange, since: int) -> int:
        """Return the version that a client's write made, or one before it that another client made by the same change.

        A removal looks like every other one. Those of other clients may be committed before this client hears of its
        own, and the token that it gets may be of a state before them: so the first one is what it knows for sure.

        Args:
            since: How many versions there were when the client began.

        Raises:
            WrongError: No database has the write.
        """
        versions = self.versions.get(change.key, [None])
        at = next((at for at in range(since, len(versions)) if versions[at] == change.value), None)
        if at is None:
            raise WrongError(f"{change} was acknowledged, and no database has it")
        return at

    def decided_at(self, command: Decided, answer: object, since: int) -> int:
        """Return the version that was there when a client's write was decided, or the one that it made.

        Args:
            since: As `version_of` has it.

        Raises:
            WrongError: No version had reason for the answer.
        """
        key, versions = command.key, self.versions.get(command.key, [None])
        for at in range(since - 1, len(versions)):
            present = versions[at]
            told, after = command.on({} if present is None else {key: present})
            if told == answer and after == present:
                return at
            if told == answer and at + 1 < len(versions) and versions[at + 1] == after:
                return at + 1
        raise WrongError(f"{answer!r} was answered to {command}, and its key was {versions[since - 1 :]}")

    def judge_once(self, command: Decided, answer: object, since: int) -> None:
        """See that a client's write, which it may have sent several times, was not done twice.

        Args:
            answer: The one that the client got; None: none yet.
            since: As `version_of` has it, when the client sent it first.

        Raises:
            WrongError: It was done twice.
        """
        versions = self.versions.get(command.key, [None])
        done = 0
        for present, after in pairwise(versions[since - 1 :]):
            if present != after:
                done += command.on({} if present is None else {command.key: present})[1] == after
        if done > 1 and isinstance(command, Add):
            raise WrongError(f"{command} was done {done} times, answered {answer!r}: {versions[since - 1 :]}")

    # Answers.

    def judge(
        self, server: Server, session: Session | None, bounds: Bounds, found: Found, token: Token, before: Token
    ) -> None:
        """Compare an answer that a server has made in this turn of the loop.

        Args:
            session: Whose read it is.
            before: The token that the read was sent with.
        """
        self.checked += 1
        self._judge_token(server, token)
        rows = self._rows_at(server, token)
        expected = evaluated(rows, self._joins_of(server), bounds)
        if list(found) != expected:
            raise WrongError(f"{server.name} answered {found} to {bounds} at {token}, and that is {expected}")
        for loader in server.databases.read_by([bounds]):
            history = loader.followed.history
            assert history is not None, "it has answered"
            mark = history.mark
            if token.positions.get(mark, 0) < before.positions.get(mark, 0):
                raise WrongError(f"{server.name} answered {bounds} at {token}, asked for {before}")
        if session is not None:
            self._judge_session(server, session, bounds, dict(found))
            session.token = session.token.merged(token)

    def _joins_of(self, server: Server) -> Sequence[JoinSpec]:
        """Return the joins that a server has now.

        Raises:
            WrongError: They are those of no map that there was since it said that it goes by one.
        """
        if server.group:
            return ()
        found = [join.spec for join in server.engine.joins()]
        version = server.member.entry.map_version
        texts = {one.map.joins for one in self._registry.states if one.map.version >= version}
        if found not in [list(parse(text)) for text in texts]:
            raise WrongError(f"{server.name} has the joins {found}, and the maps since {version} have {texts}")
        return found

    def _judge_token(self, server: Server, token: Token) -> None:
        for mark, position in token.positions.items():
            if position < server.told.get(mark.database, 0):
                raise WrongError(f"{server.name} went back to {token} from {server.told}")
            server.told[mark.database] = position

    def _rows_at(self, server: Server, token: Token) -> Rows:
        """Return the rows of a token's state that a server's map gives to their groups."""
        found: Rows = {}
        for group, database in self._databases.items():
            marks = [mark for mark in token.positions if mark.database == history_name(group)]
            for mark in marks:
                state = database.states[mark.timeline - 1]
                if token.positions[mark] >= len(state):
                    raise WrongError(f"{server.name} is at {token}, beyond the database of {group}")
                rows = state[token.positions[mark]]
                if server.group:
                    return rows
                found |= {key: value for key, value in rows.items() if _owner(server, key) == group}
        return found

    def _judge_session(self, server: Server, session: Session, bounds: Bounds, found: Rows) -> None:
        """See that no base key is older than the session knows it, and note what it knows now."""
        for key, versions in self.versions.items():
            if not bounds[0] <= key < bounds[1]:
                continue
            value, known = found.get(key), session.seen.get(key, 0)
            at = next((at for at in range(known, len(versions)) if versions[at] == value), None)
            if at is None:
                raise WrongError(
                    f"{server.name} answered {value!r} of {key!r} to a session that knows version {known} of {versions}"
                )
            session.seen[key] = at

    # At rest.

    def judge_rest(self, server: Server, bounds: Bounds, found: Found) -> None:
        """Compare an answer with all that clients wrote."""
        self.checked += 1
        expected = evaluated(self.present(), specs_of(self._registry.state.map), bounds)
        if list(found) != expected:
            raise WrongError(f"at rest {server.name} answers {found} to {bounds}, and clients have written {expected}")


def evaluated(rows: Rows, joins: Iterable[JoinSpec], bounds: Bounds) -> list[tuple[bytes, bytes]]:
    """Return the rows of a range by the naive model."""
    model = NaiveModel()
    for spec in joins:
        model.add(spec)
    model.base = rows
    return model.scan(*bounds)


def _owner(server: Server, key: bytes) -> str:
    loader = server.databases.assignment.owner_of(key)
    return "" if loader is None else loader.name
