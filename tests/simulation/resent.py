"""Writes with request ids that clients send again, long after, at any server: each is done once, and answered alike.

add +5 of id 7    sent: done at a, no answer heard      p| moves to b      sent again: b answers what a would have
"""

from __future__ import annotations

from random import Random

from tests.simulation.decided import Decided
from tests.simulation.oracle import WrongError
from tests.simulation.truth import Truth


class SentWrites:
    """The writes with ids of all clients."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        #: How many versions their keys had when they were sent first, and what was answered; None: nothing yet.
        self._sent: dict[Decided, tuple[int, object]] = {}

    def begin(self, command: Decided) -> None:
        """Note a write that is about to be sent for the first time."""
        self._sent[command] = self._truth.count_of(command.key), None

    def drawn(self, random: Random) -> Decided | None:
        """Draw one to be sent again, half of the time one that was not answered; None: there is none yet."""
        unheard = [command for command, (_, answer) in self._sent.items() if answer is None]
        if not self._sent:
            return None
        return random.choice(unheard if unheard and random.random() < 0.5 else list(self._sent))

    def since(self, command: Decided) -> int:
        """Return how many versions its key had when a write was sent first."""
        return self._sent[command][0]

    def heard(self, command: Decided, outcome: object) -> int:
        """Note an answer; return the version of the key that it tells.

        Raises:
            WrongError: It is another one than before, or no version had reason for it.
        """
        since, before = self._sent[command]
        if before not in (None, outcome):
            raise WrongError(f"{outcome!r} was answered to {command}, and {before!r} when it was sent before")
        self._sent[command] = since, outcome
        return self._truth.decided_at(command, outcome, since)

    def judge(self) -> None:
        """See that none was done twice.

        Raises:
            WrongError: One was.
        """
        for command, (since, answer) in self._sent.items():
            self._truth.judge_once(command, answer, since)
