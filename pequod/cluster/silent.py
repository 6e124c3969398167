"""Home groups of which no home answers: nobody can write their keys, or read what computes do not have.

>>> from pequod.cluster.map import ClusterMap, ClusterState, HomeRange
>>> state = ClusterState(ClusterMap("twip", 1, home_ranges=(HomeRange(b"p|", b"p}", "a"),)))
>>> silence(state, []).partition(":")[0]
'no home of group a answers'
"""

from __future__ import annotations

from collections.abc import Collection

from pequod.cluster.map import ClusterState


def silence(state: ClusterState, answering: Collection[str]) -> str:
    """Return what fails since servers are away, and what to do; empty if some home of each group answers.

    Args:
        answering: The ids of the servers that answer.
    """
    groups = sorted({home.group for home in state.map.home_ranges})
    silent = [group for group in groups if not any(one.id in answering for one in state.homes_of(group))]
    if silent:
        named = f"group {silent[0]}" if len(silent) == 1 else f"groups {', '.join(silent)}"
        keys = "its keys" if len(silent) == 1 else "their keys"
        which = "its homes" if len(silent) == 1 else "their homes"
        return (
            f"no home of {named} answers: writes of {keys} fail, and reads of what no compute has; start {which}, "
            "or see their logs"
        )
    if state.servers and not answering:
        return "no server answers: start them, or see their logs"
    return ""
