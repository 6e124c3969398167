"""What a transaction gives."""

from __future__ import annotations

from typing import NamedTuple

from pequod.answers.rows import Rows

#: What a command of a transaction gives: a get its value or None, a scan rows, a count a number, a remove whether its
#: key was there, an add the sum, a put None.
Outcome = bytes | bool | int | Rows | None


class Transacted(NamedTuple):
    """The outcome of a transaction, which is true if its compares held."""

    #: Whether all compares held, so that the commands of `then` have run; otherwise those of `otherwise` have.
    held: bool
    #: By command what it gave.
    outcomes: list[Outcome]

    def __bool__(self) -> bool:
        return self.held
