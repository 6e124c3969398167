"""The fence of each part: its row of the ledger, which every transaction that writes its rows moves first.

    UPDATE parts SET position = new WHERE owner, epoch and position are what the writer believes
        its row comes back      the writer holds the part: rows may follow, in the same transaction
        nothing comes back      another manager has it: nothing of this part may follow

So a writer that was taken for dead writes nothing, however late it comes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pequod_views.errors import PartLostError
from pequod_views.parts import Advance, HeldPart, Place, Position, held_of
from pequod_views.targets import RowChange, Target, TargetTransaction


class PartFence:
    """Moves parts from position to position, and reads how far they are."""

    def __init__(self, target: Target) -> None:
        self._target = target
        dialect = target.dialect
        self._now = dialect.now_s
        self._number = dialect.number_cast
        self._parts, self._log = dialect.prefix + "parts", dialect.prefix + "log"

    async def positions(self, owner: str) -> dict[Place, tuple[HeldPart, int]]:
        """Return the parts that a manager holds by the ledger, each with its number of rows that do not fit."""
        async with self._target.transaction() as transaction:
            rows = await transaction.fetch(
                "SELECT view, first, last, fingerprint, epoch, owner, server_id, revision, token, unfit"
                f" FROM {self._parts} WHERE owner = $1",
                owner,
            )
        return {(row[0], row[1]): (held_of(row), row[9]) for row in rows}

    async def position(self, held: HeldPart) -> Position | None:
        """Return how far a held part is.

        Raises:
            PartLostError: Another manager holds it.
        """
        found = (await self.positions(held.owner)).get(held.part.place)
        if found is None or found[0].epoch != held.epoch:
            raise PartLostError(held.part.view, held.part.first)
        return found[0].position

    async def advance(self, transaction: TargetTransaction, held: HeldPart, step: Advance, lease_s: float) -> None:
        """Move one part, as `advance_all` does.

        Raises:
            PartLostError: Another manager holds it, or it is not at the position where the step begins.
        """
        if not await self.advance_all(transaction, [(held, step)], lease_s):
            raise PartLostError(held.part.view, held.part.first)

    async def advance_all(
        self, transaction: TargetTransaction, steps: Sequence[tuple[HeldPart, Advance]], lease_s: float
    ) -> set[Place]:
        """Move parts to their next positions, at the beginning of the transaction that writes their rows.

        Requires:
            Of all steps or of none the part is replaced.

        Returns:
            The parts that are moved. Of the others nothing may be written: another manager holds them, or they are not
            where their steps begin.
        """
        ordered = sorted(steps, key=lambda step: step[0].part.place)
        unfit = f"CAST($9 AS {self._number})"
        if not ordered[0][1].is_replacement:
            unfit = f"unfit + {unfit}"
        change = RowChange(
            self._parts,
            f"server_id = $5, revision = $6, token = $7, current_at = {self._now} - $14,"
            f" leased_until = {self._now} + $8, changes = changes + $11, trouble = '', unfit = {unfit},"
            f" unfit_example = CASE WHEN {unfit} = 0 THEN '' WHEN $10 <> '' THEN $10 ELSE unfit_example END",
            "view = $1 AND first = $2 AND owner = $3 AND epoch = $4 AND server_id = $12 AND revision = $13",
            "view, first",
        )
        moved = await transaction.change_each(change, [_moving(held, step, lease_s) for held, step in ordered])
        if moved and self._target.dialect.tell_moved:
            # They hear it once the transaction is committed.
            await transaction.fetch(self._target.dialect.tell_moved)
        return {(view, first) for view, first in moved}

    async def note(self, transaction: TargetTransaction, steps: Sequence[tuple[HeldPart, Advance]]) -> None:
        """Note steps of parts in the log of applied revisions."""
        await transaction.fetch_each(
            f"INSERT INTO {self._log} VALUES ($1, $2, $3, $4, {self._now}, $5, $6, $7, $8, $9, $10)",
            [
                (
                    held.part.view,
                    held.part.first,
                    held.epoch,
                    held.owner,
                    _hex(step.before),
                    0 if step.before is None else step.before.revision,
                    _hex(step.after),
                    step.after.revision,
                    step.change_count,
                    int(step.is_replacement),
                )
                for held, step in steps
            ],
        )

    async def renew(self, transaction: TargetTransaction, parts: Sequence[HeldPart], lease_s: float) -> None:
        """Renew the leases of parts at the end of a transaction that took long."""
        await transaction.fetch_each(
            f"UPDATE {self._parts} SET leased_until = {self._now} + $3 WHERE view = $1 AND first = $2",
            [(*held.part.place, lease_s) for held in parts],
        )

    async def tell_trouble(self, parts: Sequence[HeldPart], trouble: str) -> None:
        """Note why parts do not go on, for `status`; the next step forward wipes it out."""
        shown = trouble.replace("\0", "\\0")[:500]
        async with self._target.transaction() as transaction:
            await transaction.fetch_each(
                f"UPDATE {self._parts} SET trouble = $5 WHERE view = $1 AND first = $2 AND owner = $3 AND epoch = $4",
                [(*one.part.place, one.owner, one.epoch, shown) for one in sorted(parts, key=_place_of)],
            )


def _place_of(held: HeldPart) -> Place:
    return held.part.place


def _moving(held: HeldPart, step: Advance, lease_s: float) -> tuple[object, ...]:
    """Return the arguments of the statement that moves a part."""
    before, after = step.before, step.after
    return (
        held.part.view,
        held.part.first,
        held.owner,
        held.epoch,
        _hex(after),
        after.revision,
        str(after.token) if after.token.positions else "",
        lease_s,
        step.unfit_count,
        step.unfit_example.replace("\0", "\\0"),
        step.change_count,
        _hex(before),
        0 if before is None else before.revision,
        step.age_s,
    )


def _hex(position: Position | None) -> str:
    return "" if position is None else f"{position.server_id:016x}"
