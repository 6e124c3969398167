"""A mutation: one small change of a file, such as a hand makes by mistake."""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """What stands in the place of a part of a text."""

    #: The part, half-open, in characters.
    first: int
    last: int
    wrong: str
    #: What kind of a change it is, such as ``condition``.
    kind: str

    def applied(self, text: str) -> str:
        """Return the text with the change."""
        return text[: self.first] + self.wrong + text[self.last :]

    def line(self, text: str) -> int:
        """Return the number of the line of the change, from 1."""
        return text.count("\n", 0, self.first) + 1

    def described(self, text: str) -> str:
        """Return the line of the change, and what it was and is."""
        right = " ".join(text[self.first : self.last].split())
        wrong = " ".join(self.wrong.split()) or "nothing"
        return f"{self.line(text)}: {self.kind}: `{right}` becomes `{wrong}`"
