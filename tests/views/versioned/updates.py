"""Random updates of a base table."""

from __future__ import annotations

import random

from pequod_views.versioned import StoredCell, Update


def random_updates(rng: random.Random, count: int, base_keys: int = 1, keys: float = 0.65) -> list[Update]:
    """Return updates with timestamps of their own, in any order.

    Args:
        keys: How many of them are of the view key, of one.
    """
    times = rng.sample(range(1, 10 * count), count)
    return [
        Update("ticket", f"t{rng.randrange(base_keys)}", "assigned", StoredCell(rng.choice([*"abc", None]), time))
        if rng.random() < keys
        else Update("ticket", f"t{rng.randrange(base_keys)}", rng.choice(["status", "title"]),
                    StoredCell(rng.choice(["x", "y", None]), time))
        for time in times
    ]  # fmt: skip


def joined(rng: random.Random, updates: list[Update], share: float) -> list[Update | tuple[Update, ...]]:
    """Have some updates be written at once with the one before, where both are of one record and of other columns."""
    groups: list[tuple[Update, ...]] = []
    for update in updates:
        before = groups[-1] if groups else ()
        fits = before and before[0].key == update.key and update.column not in {one.column for one in before}
        if fits and rng.random() < share:
            groups[-1] = (*before, update)
        else:
            groups.append((update,))
    return list(groups)
