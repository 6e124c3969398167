"""The rows of those whom a timeline selects, natively: all of them at a first check, or those that its log brings.

    collect     s|ann|bob, s|ann|liz selected     rows of p|bob|, p|liz| as tails, sorted; waits at p|bob|, p|liz|
    apply_log   s|ann|eve came                    rows of p|eve| are put in; waits at p|eve|

Each does in one call what `Execution` and `differences` do with lists; if the case is not plain, it changes nothing,
and these have to do it. So there is no twin in Python.
"""

from __future__ import annotations

from collections.abc import Sequence

from pequod.engine.base.table import Table
from pequod.engine.joins.contexts import Context
from pequod.engine.joins.frames import Frames
from pequod.engine.joins.timeline import Timeline
from pequod.language.narrowing import relative
from pequod.language.ranges import Range
from pequod.language.spec import DELIMITER
from pequod.native import NativeKernel, core


def make_kernel(kernel: Timeline, tables: Sequence[Table], frames: Sequence[Frames[Context]]) -> NativeKernel | None:
    """Return the native form of a kernel that applies logs; None if there is none.

    Args:
        kernel: The plan's.
        tables: Those of both sources.
        frames: Those of both steps.
    """
    if core is None:
        return None
    selecting, copied = tables
    checks, copies = (step.native for step in frames)
    before, width, after = kernel.around
    # The cut with which the prefixes that are selected are those of groups.
    cut = 0 if width is None else len(before) + width + len(after) - len(copied.prefix)
    is_cut = (before, after) == (copied.prefix, DELIMITER) if width is None else cut > 0
    if checks is None or copies is None or kernel.fixed_ending is None or not is_cut:
        return None
    made: NativeKernel = core.Kernel(
        selecting=selecting,
        copied=copied,
        checks=checks,
        copies=copies,
        before=before,
        bound_width=-1 if width is None else width,
        after=after,
        tail_width=kernel.splice.width,
        ending=kernel.fixed_ending,
        copied_cut=cut,
    )
    return made


def collect(context: Context, first: bytes, last: bytes, rows_max: int) -> int | None:
    """Take the rows of ``[first, last)`` into a new context, and let it wait at its frames.

    Args:
        context: Nothing is materialised in it.
        first: Not below the context's prefix.
        last: Not above its end.
        rows_max: More rows are not plain.

    Requires:
        The join's sources are tables that clients write.

    Returns:
        How many rows there are; None, and nothing has changed, if the case is not plain or nothing is native.
    """
    env, plan = context.environment, context.plan
    if core is None or context.kernel is None or plan.log_kernel is None:
        return None
    kernel = plan.log_kernel
    prefix = kernel.selecting(env)
    selected = context.join.source_tables[0].group(prefix)
    if selected is None:
        return None
    within: tuple[bytes | None, ...]
    if last == context.end:
        # As for logs: all keys of the check count, and tails begin with the copied part of a key, which is so bounded.
        lower = first[len(context.prefix) :]
        within = prefix, None, lower, None, lower[: kernel.splice.width], None
    else:
        bounds = relative(context.prefix, first, last)
        (from_checks, _), (from_copies, is_steady) = [step.containing.narrow(env, first, last) for step in plan.steps]
        if bounds is None or from_checks is None or from_copies is None or not is_steady:
            return None
        end = None if from_checks.last is None else prefix + from_checks.last
        within = prefix + from_checks.first, end, *bounds, *from_copies
    found: int | None = core.collect(context, selected, prefix, *within, rows_max)
    return found


def apply_log(context: Context, read_number: int) -> bool:
    """Bring the rows and the frames of a context up to date with its log.

    Args:
        context: Its log stays as it is; `Context.settle` empties it.
        read_number: The loaded ranges that this reads count as used by this read.

    Returns:
        False, and nothing has changed, if nothing is native or the case is not plain: it has several ranges, others
        follow its rows, or what the log needs is not loaded.
    """
    native, kernel = context.kernel, context.plan.log_kernel
    if core is None or native is None or not native.is_quiet or not core.apply_log(context):
        return False
    if kernel is not None and any(table.presence is not None for table in context.join.source_tables):
        gaps = read_by_log(kernel, context, read_number)
        assert not gaps, "the core applies a log only if all that it needs is loaded"
    return True


def read_by_log(kernel: Timeline, context: Context, read_number: int) -> list[Range]:
    """Return what the log of a context needs of backed tables that is not loaded; what is counts as used by a read.

    Requires:
        ``kernel.applies_logs``, and the context is materialised up to its prefix's end.
    """
    tables = selecting, _ = context.join.source_tables
    needed = kernel.read_by_log(context, context.environment, context.log, selecting)
    return [
        gap
        for table, ranges in zip(tables, needed, strict=True)
        if (presence := table.presence) is not None
        for first, last in ranges
        for gap in presence.gaps(first, last, read_number)
    ]
