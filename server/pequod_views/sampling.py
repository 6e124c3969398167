"""What `split` and `balance` find out for a person: rates of parts, and the keys that change."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress

from pequod.client import AsyncClient
from pequod.client.watch_ranges import WatchedRange
from pequod_views.definition import DurableView
from pequod_views.errors import TargetUnfitError
from pequod_views.load import PartLoad, Rates, middle, moves
from pequod_views.moving import CountedPart, PartMover
from pequod_views.parts import Place
from pequod_views.targets import Target


async def rates_of(mover: PartMover, seconds: float) -> tuple[list[CountedPart], dict[Place, float]]:
    """Return all parts, and the rows that each has taken in a second, as of some seconds."""
    rates = Rates()
    rates.take({one.place: one.changes for one in await mover.counted()}, time.monotonic())
    await asyncio.sleep(seconds)
    parts = await mover.counted()
    return parts, rates.take({one.place: one.changes for one in parts}, time.monotonic())


async def split_key(client: AsyncClient, mover: PartMover, view: DurableView, seconds: float) -> bytes:
    """Return where the part of a view that has the most changes is best split.

    Args:
        seconds: How long changes are counted, and then watched.

    Raises:
        TargetUnfitError: The view has no part, or no key divides its changes, or its rows if there are none.
    """
    parts, rates = await rates_of(mover, seconds)
    own = [one for one in parts if one.view == view.name]
    if not own:
        raise TargetUnfitError("the ledger", f"{view.name} is not installed; run `pequod views install`")
    part, keys = max(own, key=lambda one: rates[one.place]), list[bytes]()
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(seconds),
            aclosing(client.watch_ranges([WatchedRange(part.first, part.last)], progress_s=seconds)) as events,
        ):
            async for event in events:
                keys += [change.key for change in event.changes.get(0, ())]
    at = middle(keys, part.first)
    if at is None and not keys:
        splits = await client.splits(2, part.first, part.last)
        at = next((key for key in splits if key > part.first and part.holds(key)), None)
    if at is None:
        raise TargetUnfitError("the view", f"no key divides what changes in {view.name}: name one by --at")
    return at


async def balance(target: Target, seconds: float) -> tuple[list[PartLoad], dict[Place, str]]:
    """Hand parts to other managers so that all have as much to write; return all parts, and those that have moved.

    Raises:
        TargetUnfitError: Nothing is installed.
    """
    mover = PartMover(target)
    parts, rates = await rates_of(mover, seconds)
    loads = [one.load(rates[one.place]) for one in parts if one.is_held]
    managers = await mover.managers_of([one.owner for one in loads])
    moving = moves(loads, managers)
    done = await mover.hand_over(loads, moving) if moving else []
    return loads, {place: moving[place] for place in done}
