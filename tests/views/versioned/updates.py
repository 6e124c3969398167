"""Random updates of a base table."""

from __future__ import annotations

import random

from pequod_views.versioned import StoredCell, Update


def random_updates(rng: random.Random, count: int, base_keys: int = 1) -> list[Update]:
    """Return updates with timestamps of their own, in any order."""
    times = rng.sample(range(1, 10 * count), count)
    return [
        Update("ticket", f"t{rng.randrange(base_keys)}", "assigned", StoredCell(rng.choice([*"abc", None]), time))
        if rng.random() < 0.65
        else Update("ticket", f"t{rng.randrange(base_keys)}", rng.choice(["status", "title"]),
                    StoredCell(rng.choice(["x", "y", None]), time))
        for time in times
    ]  # fmt: skip
