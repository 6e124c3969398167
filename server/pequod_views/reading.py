"""What readers of a table may ask: how far it is, and whether it has reached a token."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pequod.escapes import escaped
from pequod.freshness import NO_TOKEN, Token
from pequod_views.errors import TargetUnfitError
from pequod_views.ledger import PartLedger
from pequod_views.targets import Target


@dataclass(frozen=True, slots=True)
class PartStatus:
    """A part as `status` shows it."""

    view: str
    first: str
    last: str
    #: The manager that holds it; empty if none does.
    owner: str
    #: How old the rows may be, in seconds; None before the first.
    age_s: float | None
    server_id: str
    revision: int
    token: str
    changes: int
    #: Rows of the server that do not fit the columns, and so are not in the table; and why one of them does not.
    unfit: int
    unfit_example: str
    #: Why it does not go on; empty if it does.
    trouble: str

    @property
    def state(self) -> str:
        """One word for all this."""
        if self.trouble:
            return "waits"
        if not self.owner:
            return "free"
        return "follows" if self.age_s is not None else "begins"


async def status(target: Target) -> list[PartStatus]:
    """Return the parts of all views that are installed in a database.

    Raises:
        TargetAwayError: It does not answer.
    """
    return [
        PartStatus(
            view=row["view"],
            first=escaped(row["first"]),
            last="" if row["last"] is None else escaped(row["last"]),
            owner=row["owner"] if row["is_held"] else "",
            age_s=None if row["age_s"] is None else max(0.0, row["age_s"]),
            server_id=row["server_id"],
            revision=row["revision"],
            token=row["token"],
            changes=row["changes"],
            unfit=row["unfit"],
            unfit_example=row["unfit_example"],
            trouble=row["trouble"],
        )
        for row in await PartLedger(target).shown()
    ]


def has_reached(parts: list[PartStatus], token: Token) -> bool:
    """Return whether the parts of a view show at least the state of a token.

    A position of another timeline of the same database does not count: it may lack what the token names.
    """
    own = [Token.parse(part.token) if part.token else NO_TOKEN for part in parts]
    return all(part.positions.get(mark, -1) >= position for part in own for mark, position in token.positions.items())


async def wait_for(target: Target, view: str, token: Token, wait_s: float) -> bool:
    """Wait until a table shows at least the state of a token; return whether it does.

    Raises:
        TargetAwayError: The database does not answer.
        TargetUnfitError: The view is not installed there.
    """
    end_s = time.monotonic() + wait_s
    if has_reached(await _parts_of(target, view), token):
        return True
    async with target.listening() as news:
        while not has_reached(await _parts_of(target, view), token):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            await news.wait(left_s)
    return True


async def _parts_of(target: Target, view: str) -> list[PartStatus]:
    parts = await status(target)
    found = [part for part in parts if part.view == view]
    if not found:
        there = ", ".join(dict.fromkeys(part.view for part in parts)) or "none"
        raise TargetUnfitError(target.name, f"no view {view!r} is installed there; there are: {there}")
    return found
