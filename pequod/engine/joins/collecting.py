"""What a timeline gets from those it selects, natively: all of it at a first check, or what its log brings.

    collect     s|ann|bob, s|ann|liz selected     rows of p|bob|, p|liz| as tails, sorted; waits at p|bob|, p|liz|
    bring_up    s|ann|eve came                    rows of p|eve| are put in; waits at p|eve|

Each does in one call what `Execution` and `Timeline.apply_log` do with lists, where the case is plain; else it changes
nothing, and they do it. So there is no twin in Python.
"""

from __future__ import annotations

from pequod.engine.base.table import Table
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.timeline import Timeline
from pequod.engine.memory.ledger import BYTES
from pequod.engine.native import core
from pequod.language.narrowing import relative


def collect(kernel: Timeline, context: Context, first: bytes, last: bytes, rows_max: int) -> int | None:
    """Take the rows of ``[first, last)`` into a new context, and let it wait at its frames.

    Args:
        kernel: That of the context's plan, which is whole.
        context: Nothing is materialised in it.
        first: Not below the context's prefix.
        last: Not above its end.
        rows_max: More rows are not plain.

    Requires:
        The join's sources are tables that clients write.

    Returns:
        How many rows there are; None, and nothing has changed, if the case is not plain or there is no native core.
    """
    if core is None:
        return None
    env, plan = context.environment, context.plan
    selecting, copied = context.join.source_tables
    prefix = kernel.selecting(env)
    selected = selecting.group(prefix)
    checks, copies = context.frames
    frames = copies.native
    bounds = relative(context.prefix, first, last)
    (from_checks, _), (from_copies, is_steady) = [step.containing.narrow(env, first, last) for step in plan.steps]
    if (
        selected is None
        or checks.native is None
        or frames is None
        or bounds is None
        or from_checks is None
        or from_copies is None
        or not is_steady
        or not copied.is_cut_between(*kernel.around)
    ):
        return None
    found: tuple[int, int, int] | None = core.collect(
        context,
        selected,
        len(prefix),
        prefix + from_checks.first,
        None if from_checks.last is None else prefix + from_checks.last,
        copied,
        frames,
        *bounds,
        *from_copies,
        rows_max,
        *kernel.around,
        kernel.splice.width,
        kernel.ending(env),
    )
    if found is None:
        return None
    count, tail_bytes, grown_bytes = found
    context.gain_rows(count, (BYTES + tail_bytes) * count)
    context.ledger.change_updaters(grown_bytes)
    checks.add_all([prefix], context)
    return count


def bring_up(kernel: Timeline, context: Context) -> None:
    """Bring the rows and the frames of a context up to date with its log.

    Requires:
        As `Timeline.apply_log`.
    """
    selecting, copied = context.join.source_tables
    if _apply_log(kernel, context, selecting, copied):
        return
    came, went = kernel.apply_log(context, context.environment.copy(), context.log, selecting, copied)
    frames = context.frames[1]
    if came:
        frames.add_all(came, context)
    for frame_key in went:
        frames.remove(frame_key, None, context)


def _apply_log(kernel: Timeline, context: Context, selecting: Table, copied: Table) -> bool:
    """Do what `bring_up` does; return False, having changed nothing, if the case is not plain or nothing is native."""
    if core is None:
        return False
    env = context.environment
    prefix = kernel.selecting(env)
    selected, frames = selecting.group(prefix), context.frames[1].native
    if selected is None or frames is None or not copied.is_cut_between(*kernel.around):
        return False
    width = kernel.splice.width
    found: tuple[int, int, int] | None = core.apply_log(
        context,
        context.log,
        selected,
        len(prefix),
        copied,
        frames,
        context.lower[:width],
        *kernel.around,
        width,
        kernel.ending(env),
    )
    if found is None:
        return False
    count, tail_bytes, grown_bytes = found
    if count:
        context.gain_rows(count, BYTES * count + tail_bytes)
    context.ledger.change_updaters(grown_bytes)
    return True
