"""Ways to keep timelines in Pequod, on the same Twip: maintenance (paper §3.4) and celebrities (§2.3).

- push: what is read is kept and follows every change.
- pull: computed on each read, nothing is kept.
- snapshot: what was computed is given out for some time, whatever happens meanwhile.
- celebrities: posts of the users with the most followers go into one table, in the order of time, instead of into all
  their followers' timelines, and each read picks from it what the reader follows.
"""

from __future__ import annotations

from typing import Final

from pequod_bench import keys
from pequod_bench.compare.pequod_joins import Timelines
from pequod_bench.compare.pequod_system import PequodSystem

SNAPSHOT_S: Final = 0.5
#: Of the users, those with the most followers.
CELEBRITY_PART: Final = 0.01

MAINTENANCE: Final = (
    PequodSystem("push", "push", "Kept fresh by every change.", Timelines(keys.PUSH_JOIN)),
    PequodSystem("pull", "pull", "Computed on each read.", Timelines(keys.PULL_JOIN)),
    PequodSystem(
        "snapshot",
        f"snapshot {SNAPSHOT_S}",
        f"Given out as it was up to {SNAPSHOT_S} s ago; a post that comes too late for the check that passes its place "
        "is missing from the rows of all checks.",
        Timelines(keys.PUSH_JOIN.replace("= check", f"= snapshot {SNAPSHOT_S} check"), stale_s_max=2 * SNAPSHOT_S),
    ),
)
CELEBRITIES: Final = (
    PequodSystem("everyone", "everyone alike", "All posts go into all timelines.", Timelines()),
    PequodSystem(
        "celebrities",
        "celebrities apart",
        f"Posts of the {CELEBRITY_PART:.0%} with the most followers are picked on each read.",
        Timelines(keys.CELEBRITY_JOINS, celebrity_part=CELEBRITY_PART),
    ),
)
