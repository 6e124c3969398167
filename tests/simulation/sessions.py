"""Sessions that move between servers: what a client knows, and beside it what it really saw and wrote.

What it knows is kept by the part of the real clients that does so (`pequod.interface.seen`). What was seen is the
judge's own: a session whose token says too little would read too early, and the oracle notices by what was seen.
"""

from __future__ import annotations

from pequod.freshness import NO_TOKEN, WAIT_S, Token
from pequod.interface.seen import Seen
from tests.simulation.levels import Level
from tests.simulation.moments import Moment


class Session:
    """The session of one client; several of its calls may be under way."""

    def __init__(self, name: str, token: Token = NO_TOKEN) -> None:
        self.name = name
        self._known = Seen(token, WAIT_S)
        #: How long its next read waits; None: as long as servers do by themselves.
        self.wait_s: float | None = None
        #: The moments of its reads and writes.
        self.seen: set[Moment] = set()

    @property
    def token(self) -> Token:
        """What the client hands on."""
        return self._known.token

    @property
    def next_level(self) -> Level:
        """The level of its next read."""
        return Level(after=self.token, wait_s=self.wait_s)

    def answered(self, reply: Token, moment: Moment) -> None:
        """Note what a read brought."""
        self._known.note(bytes(reply))
        self.seen.add(moment)

    def wrote(self, reply: Token, moments: list[Moment]) -> None:
        """Note that writes are acknowledged, and where they are."""
        self._known.note(bytes(reply))
        self.seen |= set(moments)

    def begin_anew(self) -> None:
        """Forget everything: the token's state is lost."""
        self._known = Seen(NO_TOKEN, WAIT_S)
        self.seen = set()

    def take_over(self, other: Session) -> None:
        """Take the token of another session, as from a cookie or a message."""
        self._known = Seen(self.token.merged(other.token), WAIT_S)
        self.seen |= other.seen
