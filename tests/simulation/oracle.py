"""What a server may answer: what the naive model makes of the database as of the reply's token, and not too early.

answer    the joins evaluated over the database at the token's moment; rows of snapshot joins may be older by T
level     the moment holds the token that the read was sent with, or the last commit before a `latest`, or every
          commit that is older than a bound; so does the age that the reply tells
session   it holds what the session saw and wrote before, whatever its token says
server    the moments of one server never go back, but with the database
error     TokenLostError if, and only if, a failover lost what the token names; StaleError in time
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pequod_server.backing import RowChange

from pequod.engine import JoinSpec, Snapshot
from pequod.engine.testing import NaiveModel
from pequod.freshness import Token
from tests.engine.stems import stems_of
from tests.simulation.database import Database, Rows
from tests.simulation.decided import Decided
from tests.simulation.history import holds, is_lost, moments_of, shared
from tests.simulation.levels import Demand
from tests.simulation.machine import Machine
from tests.simulation.moments import Moment

#: Times that servers tell are cut to milliseconds, and clocks are read a little later than the wire.
_SLACK_S = 0.002


class WrongError(AssertionError):
    """A server answered what it may not."""


@dataclass(frozen=True)
class State:
    """What a reply says of the state that it shows."""

    token: Token
    age_s: float | None

    @property
    def moment(self) -> Moment:
        """The moment of the one database at which the reply was made."""
        return max(moments_of(self.token))

    @property
    def lost(self) -> list[Moment]:
        """Earlier moments that the reply shows as well, and that a failover has lost since."""
        return [moment for moment in moments_of(self.token) if moment != self.moment]


@dataclass(frozen=True)
class Since:
    """What a server had when a batch began."""

    moment: Moment
    #: See `Machine.join_changes`.
    join_changes: int


class Oracle:
    """Judges answers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: Rows by what they are evaluated from; one entry is often asked for again.
        self._evaluated: dict[object, Rows] = {}
        self.checked = 0
        #: Answers of which nothing can be said: over snapshot joins, or while joins came or went.
        self.unchecked = 0

    # Answers.

    def judge(self, machine: Machine, demanded: Demand, found: object, ask: Ask, state: State) -> None:
        """Compare an answer that was made in this turn of the loop with the database.

        Raises:
            WrongError: The answer may not be.
        """
        self._judge_state(machine, state)
        if ask.reads_database(machine):
            self._judge_level(machine, demanded, state.moment)
        self.checked += 1
        if not self._is_right(machine, demanded, found, ask, state.moment):
            raise WrongError(self._told(machine, demanded, found, ask, state.moment))

    def judge_in_order(
        self, machine: Machine, answers: Sequence[tuple[Demand, Ask, object]], since: Since, state: State
    ) -> None:
        """Compare the answers of a batch, which may have waited between two of its reads.

        Args:
            since: What the server had before the batch.

        Raises:
            WrongError: They are not of moments that the reply names, one after another, up to its last one.
        """
        self._judge_state(machine, state)
        if since.join_changes != machine.join_changes:
            # Some of the reads were answered by other joins.
            self.unchecked += len(answers)
            return
        moments = (one for one in self._moments(since.moment, state.moment) if self._is_named(one, state))
        moment = next(moments)
        for demanded, ask, found in answers:
            # A failover since may have taken the level of an earlier read away from the state that the reply names.
            is_free = not ask.reads_database(machine)
            self.checked += 1
            while not (
                (is_free or self._meets(demanded, moment)) and self._is_right(machine, demanded, found, ask, moment)
            ):
                following = next(moments, None)
                if following is None:
                    told = self._told(machine, demanded, found, ask, state.moment)
                    raise WrongError(f"in a batch of {len(answers)} reads begun at {since.moment}, {told}")
                moment = following

    def judge_at_rest(self, machine: Machine, found: object, ask: Ask) -> None:
        """Compare an answer with the database as it is."""
        moment = Moment(self._database.timeline, self._database.position)
        expected = ask(self._at(moment, specs_of(machine)))
        if found != expected:
            raise WrongError(f"at rest {machine.name} answers {found!r} to {ask}, and the database has {expected!r}")

    def stems_at_rest(self, machine: Machine) -> list[tuple[bytes, bytes | None]]:
        """Return the ranges in which a server's joins have rows, one for each value of a first slot."""
        model = NaiveModel()
        for spec in specs_of(machine):
            model.add(spec)
        model.base = self._database.states[-1][self._database.position]
        return stems_of(model)

    def judge_write(self, machine: Machine, change: RowChange, state: State, moments: Sequence[Moment]) -> Moment:
        """See that an acknowledged write is in the database and in the reply's token, and return where it is.

        Args:
            moments: Where such a change was committed since the call began. Others may have committed the same, even at
                a place that is lost.
        """
        self._judge_state(machine, state)
        if not moments:
            raise WrongError(f"{machine.name} acknowledged {change}, and the database has not got it")
        told = [moment for moment in moments if self._is_named(moment, state)]
        if not told:
            raise WrongError(f"{machine.name} acknowledged {change} at {state.moment}, and it is at {moments}")
        return min(told)

    def judge_decided(self, machine: Machine, command: Decided, answer: object, state: State, began: Moment) -> Moment:
        """See that the database had reason for the answer to a write, at a moment that the reply names; return it.

        Args:
            began: Where the database was when the write was sent.
        """
        self._judge_state(machine, state)
        self.checked += 1
        possible = [
            moment
            for moment, before, after in self._database.commits(began)
            if command.on(before) == (answer, after.get(command.key))
        ]
        told = [moment for moment in possible if self._is_named(moment, state)]
        if not told:
            raise WrongError(
                f"{machine.name} answered {answer!r} to {command} at {state.moment}, and the database at {possible}"
            )
        return min(told)

    def judge_refused(self, machine: Machine, command: Decided, began: Moment) -> None:
        """See that the database had reason to refuse an addition since it was sent: the value was no number."""
        self.checked += 1
        commits = [self._database.states[began.timeline][began.position]]
        commits += [after for _, _, after in self._database.commits(began)]
        if all(command.on(rows)[0] is not None for rows in commits):
            raise WrongError(f"{machine.name} refused {command}, and since {began} the key had a number")

    # Errors.

    def judge_lost(self, machine: Machine, demanded: Demand) -> None:
        """See that TokenLostError is told with reason."""
        after = demanded.level.after
        if after is None or not any(is_lost(self._database, moment) for moment in moments_of(after)):
            raise WrongError(f"{machine.name} has lost {demanded.level}, and the database has not")

    def judge_stale(self, machine: Machine, demanded: Demand, *, by_s: float) -> None:
        """See that StaleError is told in time, and only to those who asked for a level.

        What a read waits for its level has a bound, and what it waits for a load has none. It is told late if the
        database fails over while it loads, or the server hears of that: the level, which was met before the load, is
        not any more.
        """
        if demanded.level.is_any:
            raise WrongError(f"{machine.name} told StaleError without a level")
        now_s = asyncio.get_running_loop().time()
        heard_of = {moment.timeline for moment in machine.recent(now_s - demanded.begun_s)}
        if now_s > by_s and self._database.timeline == demanded.timeline and len(heard_of) == 1:
            raise WrongError(f"{machine.name} told StaleError after {now_s - demanded.begun_s:.3f} s: {demanded.level}")

    # The laws.

    def _judge_state(self, machine: Machine, state: State) -> None:
        """See that the moment exists, that the server did not go back to it, and that its age is true."""
        moment, database = state.moment, self._database
        if moment.timeline > database.timeline or moment.position >= len(database.states[moment.timeline]):
            raise WrongError(f"{machine.name} is at {moment}, beyond the database")
        before = machine.told
        if before is not None and moment < before:
            raise WrongError(f"{machine.name} went back from {before} to {moment}")
        machine.told = moment
        for one in state.lost:
            if not is_lost(database, one):
                raise WrongError(f"{machine.name} is at {moment} and names {one}, which is not lost")
        if state.age_s is not None:
            before_s = asyncio.get_running_loop().time() - state.age_s - _SLACK_S
            if not self._is_as_old_at_most(moment, then := database.moment_at(before_s)):
                raise WrongError(
                    f"{machine.name} tells an age of {state.age_s} s at {moment}, and at {before_s:.3f} s the database "
                    f"was at {then}"
                )

    def _judge_level(self, machine: Machine, demanded: Demand, moment: Moment) -> None:
        if self._meets(demanded, moment):
            return
        then = "" if demanded.level.max_age_s is None else f", when the database was at {self._oldest(demanded)}"
        raise WrongError(
            f"{machine.name} answered {demanded.level} at {moment}{then}; seen: {sorted(demanded.seen)}, "
            f"latest: {demanded.latest}"
        )

    def _meets(self, demanded: Demand, moment: Moment) -> bool:
        """Return whether a moment is as fresh as demanded."""
        if not all(holds(self._database, moment, seen) for seen in demanded.seen):
            return False
        if demanded.latest is not None and not self._holds_what_is_kept(moment, demanded.latest):
            return False
        return demanded.level.max_age_s is None or self._is_as_old_at_most(moment, self._oldest(demanded))

    def _oldest(self, demanded: Demand) -> Moment:
        assert demanded.level.max_age_s is not None
        return self._database.moment_at(demanded.begun_s - demanded.level.max_age_s - _SLACK_S)

    def _is_named(self, moment: Moment, state: State) -> bool:
        """Return whether a reply's token holds a moment."""
        return any(holds(self._database, one, moment) for one in moments_of(state.token))

    def _is_as_old_at_most(self, moment: Moment, then: Moment) -> bool:
        # A primary that was replaced, and does not know it, tells the age of what it has.
        return moment.timeline != then.timeline or self._holds_what_is_kept(moment, then)

    def _holds_what_is_kept(self, state: Moment, part: Moment) -> bool:
        """Return whether a state has a moment, but for what a failover has lost."""
        fork = shared(self._database, state.timeline, part.timeline)
        if fork is not None and state.timeline > part.timeline:
            part = Moment(part.timeline, min(part.position, fork))
        return holds(self._database, state, part)

    # What the joins make of a moment.

    def _is_right(self, machine: Machine, demanded: Demand, found: object, ask: Ask, moment: Moment) -> bool:
        specs = specs_of(machine)
        if found == ask(self._at(moment, specs)):
            return True
        ages = [float(spec.maintenance.age_s) for spec in specs if isinstance(spec.maintenance, Snapshot)]
        if not ages:
            return False
        # Snapshots of snapshots add their ages up.
        recent = [at for at in machine.recent(sum(ages)) if self._meets(demanded, at)]
        plausible = ask.plausible(found, [self._at(at, specs) for at in (*recent, moment)], Timed(specs))
        self.unchecked += plausible is None
        return plausible is not False

    def _moments(self, since: Moment, upto: Moment) -> Iterator[Moment]:
        """Yield the moments from one to another, on its timeline and on those that followed."""
        position = since.position
        for timeline in range(since.timeline, upto.timeline + 1):
            if timeline > since.timeline:
                position = min(position, self._database.forks[timeline])
            end = upto.position + 1 if timeline == upto.timeline else len(self._database.states[timeline])
            for at in range(position, end):
                yield Moment(timeline, at)

    def _at(self, moment: Moment, specs: tuple[JoinSpec, ...]) -> Rows:
        name = moment, specs
        if name not in self._evaluated:
            if len(self._evaluated) > 200:
                self._evaluated.clear()
            model = NaiveModel()
            model.base = self._database.states[moment.timeline][moment.position]
            for spec in specs:
                model.add(spec)
            self._evaluated[name] = model.evaluate()
        return self._evaluated[name]

    def _told(self, machine: Machine, demanded: Demand, found: object, ask: Ask, moment: Moment) -> str:
        specs = specs_of(machine)
        return (
            f"{machine.name} answered {found!r} to {ask} at {moment}, and the database had "
            f"{ask(self._at(moment, specs))!r}\n  begun at {demanded.begun_s:.3f} s with {demanded.level}; now it is "
            f"{asyncio.get_running_loop().time():.3f} s, and the database is at {self._database.timeline}/"
            f"{self._database.position}\n  joins: {'; '.join(map(str, specs))}"
        )


def specs_of(machine: Machine) -> tuple[JoinSpec, ...]:
    """Return the joins of a server."""
    return tuple(join.spec for join in machine.engine.joins())


class Timed:
    """Which keys snapshot joins compute."""

    def __init__(self, specs: tuple[JoinSpec, ...]) -> None:
        self._specs = specs
        self._outputs = {_table(spec.output.literal_prefix) for spec in specs}

    def may_be_old(self, key: bytes) -> bool | None:
        """Return whether a row may be older than the token; None if it may mix moments, so that nothing is known.

        Joins over snapshots mix moments, and so do a snapshot and another join that compute one key.
        """
        computing = [spec for spec in self._specs if _computes(spec, key)]
        timed = [spec for spec in computing if isinstance(spec.maintenance, Snapshot)]
        if any(_table(source.pattern.literal_prefix) in self._outputs for spec in computing for source in spec.sources):
            return None
        if timed and len(computing) > 1:
            return None
        return bool(timed)


def _table(prefix: bytes) -> bytes:
    return prefix.partition(b"|")[0]


def _computes(spec: JoinSpec, key: bytes) -> bool:
    model = NaiveModel()
    model.add(spec)
    return model.computes(key)


@dataclass(frozen=True)
class Ask:
    """A read, as it is asked of rows: the base class of those in `reads.py`."""

    def __call__(self, rows: Rows) -> object:
        """Return the answer that these rows give."""
        raise NotImplementedError

    def reads_database(self, machine: Machine) -> bool:
        """Return whether what a server has of its database is read: levels are about nothing else."""
        return any(machine.engine.reads_backed(first, last) for first, last in self.bounds())

    def bounds(self) -> Sequence[tuple[bytes, bytes | None]]:
        """Return the ranges that are read."""
        raise NotImplementedError

    def plausible(self, found: object, states: Sequence[Rows], timed: Timed) -> bool | None:
        """Return whether each row was so in one of some states, the last of which is the present one.

        Rows that no snapshot join computes must be as in the last state. None: it cannot be told.
        """
        raise NotImplementedError


def plausible_rows(found: Rows, absent: Sequence[bytes], states: Sequence[Rows], timed: Timed) -> bool:
    """Compare rows, and keys that have none, one by one; see `Ask.plausible`."""
    values: dict[bytes, bytes | None] = {**found, **dict.fromkeys(absent)}
    for key, value in values.items():
        may_be_old = timed.may_be_old(key)
        if may_be_old is None:
            continue
        if value not in [state.get(key) for state in (states if may_be_old else states[-1:])]:
            return False
    return True
