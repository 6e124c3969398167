"""What a server may answer: what the naive model says of the database at some position.

    strict    the database as of one position, from the one that the server knew to have landed when the read began to
              the database's last one
    tolerant  the database as of the feed's position, but for ranges whose load saw further: these are as of their load
              until the feed has passed it

Today's server keeps the second promise, not the first: a part that was evicted and loaded again may show commit 6
beside rows as of commit 5. Levels of freshness will need the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pequod_server.backing.rows import Clip
from pequod_server.backing.store import Horizon

from pequod.engine import JoinSpec
from pequod.engine.testing import NaiveModel
from tests.simulation.database import Database, Rows
from tests.simulation.machine import Machine


class WrongError(AssertionError):
    """A server answered what it may not."""


@dataclass(frozen=True)
class Moment:
    """What a server knew to have landed: a position of a timeline."""

    timeline: int
    position: int


class Oracle:
    """Judges answers.

    Args:
        strict: Hold the servers to the strict promise.
    """

    def __init__(self, database: Database, *, strict: bool) -> None:
        self._database = database
        self._strict = strict
        #: Rows by what they are evaluated from; one entry is often asked for again.
        self._evaluated: dict[object, Rows] = {}
        self.checked = 0
        #: Answers while a server had not heard of a failover: its rows may be of both timelines.
        self.unchecked = 0

    def moment(self, machine: Machine) -> Moment:
        """Return what the server knows to have landed now."""
        return Moment(machine.store.timelines[0], machine.landing.position)

    def judge(self, machine: Machine, since: Moment, found: object, ask: Ask) -> None:
        """Compare an answer that was made in this turn of the loop with the database.

        Args:
            since: What the server knew when the read began.

        Raises:
            WrongError: The answer may not be.
        """
        self._judge_position(machine, since)
        specs = tuple(join.spec for join in machine.engine.joins())
        present = [ask(self._at(moment, specs)) for moment in self._present(machine)]
        if self._strict:
            allowed = [ask(self._at(moment, specs)) for moment in self._moments(since)]
        elif machine.store.timelines != (self._database.timeline,):
            self.unchecked += 1
            return
        else:
            allowed = [ask(self._ahead(machine, specs))]
        self.checked += 1
        if found not in allowed:
            feed = self._present(machine)
            raise WrongError(
                f"{machine.name} answered {found!r} to {ask}\n  at {feed}, begun at {since}, the database is at "
                f"{self._database.timeline}/{self._database.position}; as of the feed it is {present!r}\n"
                f"  allowed: {allowed[-3:]!r}\n  joins: {'; '.join(map(str, specs))}"
            )

    def judge_in_order(self, machine: Machine, since: Moment, answers: Sequence[tuple[Ask, object]]) -> None:
        """Compare the answers of a batch, which may have waited between two of its reads.

        Raises:
            WrongError: They are not of moments, one after another, since the batch began.
        """
        self._judge_position(machine, since)
        if not self._strict:
            # The loads that had seen further while the batch ran are not known any more.
            self.unchecked += len(answers)
            return
        specs = tuple(join.spec for join in machine.engine.joins())
        moments = iter(self._moments(since))
        moment = next(moments)
        for ask, found in answers:
            self.checked += 1
            while found != ask(self._at(moment, specs)):
                following = next(moments, None)
                if following is None:
                    raise WrongError(
                        f"{machine.name} answered {found!r} to {ask} in a batch of {len(answers)} reads\n"
                        f"  begun at {since}, and the database is at {self._database.timeline}/"
                        f"{self._database.position}\n  joins: {'; '.join(map(str, specs))}"
                    )
                moment = following

    def judge_at_rest(self, machine: Machine, found: object, ask: Ask) -> None:
        """Compare an answer with the database as it is."""
        specs = tuple(join.spec for join in machine.engine.joins())
        expected = ask(self._at(Moment(self._database.timeline, self._database.position), specs))
        if found != expected:
            raise WrongError(f"at rest {machine.name} answers {found!r} to {ask}, and the database has {expected!r}")

    def _judge_position(self, machine: Machine, since: Moment) -> None:
        now = self.moment(machine)
        if now.timeline == since.timeline and now.position < since.position:
            raise WrongError(f"{machine.name} went back from {since} to {now}")
        if all(moment.position >= len(self._database.states[moment.timeline]) for moment in self._present(machine)):
            raise WrongError(f"{machine.name} is at {now}, beyond the database")

    @staticmethod
    def _present(machine: Machine) -> list[Moment]:
        return [Moment(timeline, machine.landing.position) for timeline in machine.store.timelines]

    def _moments(self, since: Moment) -> list[Moment]:
        """Return the moments since one, on its timeline and on those that followed."""
        moments, position = [], since.position
        for timeline in range(since.timeline, self._database.timeline + 1):
            if timeline > since.timeline:
                position = min(position, self._database.forks[timeline])
            moments += [Moment(timeline, at) for at in range(position, len(self._database.states[timeline]))]
        return moments

    def _at(self, moment: Moment, specs: tuple[JoinSpec, ...]) -> Rows:
        states = self._database.states[moment.timeline]
        # While a reload is taken in, the position may be of the other timeline alone.
        return self._evaluate((moment, specs), states[min(moment.position, len(states) - 1)], specs)

    def _ahead(self, machine: Machine, specs: tuple[JoinSpec, ...]) -> Rows:
        """Return what the tolerant promise allows: rows of loads that saw further than the feed has come."""
        (timeline,) = machine.store.timelines
        states = self._database.states[timeline]
        landed: list[tuple[Clip, Horizon]] = list(machine.landing._landed)
        position = machine.landing.position
        keys = {key for state in states[position:] for key in state}
        base = {}
        for key in keys:
            seen = [horizon.position for clip, horizon in landed if clip.holds(key)]
            # A load of the timeline before may have seen further than this one has come; its rows are forgotten.
            value = states[min(max([position, *seen[-1:]]), len(states) - 1)].get(key)
            if value is not None:
                base[key] = value
        return self._evaluate((tuple(sorted(base.items())), specs), base, specs)

    def _evaluate(self, name: object, base: Rows, specs: tuple[JoinSpec, ...]) -> Rows:
        if name not in self._evaluated:
            if len(self._evaluated) > 200:
                self._evaluated.clear()
            model = NaiveModel()
            model.base = base
            for spec in specs:
                model.add(spec)
            self._evaluated[name] = model.evaluate()
        return self._evaluated[name]


@dataclass(frozen=True)
class Ask:
    """A read, as it is asked of rows: the base class of those in `reads.py`."""

    def __call__(self, rows: Rows) -> object:
        """Return the answer that these rows give."""
        raise NotImplementedError
