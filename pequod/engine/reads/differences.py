"""Differences: the rows that the changes of a log add to a context or remove from it.

log of t|ann|    s|ann|liz: absent before       loops resumed at the frame s|ann|, with liz: her posts are added
                 s|ann|bob: present before      the same with bob: his posts are removed
"""

from __future__ import annotations

from pequod.engine.joins.batches import Batch
from pequod.engine.joins.contexts import Context, Log
from pequod.engine.reads.execution import Execution, Frame, Sources


def differences(context: Context, log: Log, sources: Sources) -> list[tuple[int, Batch]]:
    """Return the rows that the changes of a log add to a context or remove from it.

    The deepest source comes first: at that moment, the frames of earlier sources are as they were, and the later
    sources are done. So each tuple of source keys that appeared or disappeared is met exactly once, at the shallowest
    of its changed keys.
    """
    plan, join = context.plan, context.join

    def value_of(key: bytes) -> bytes:
        logged = (plan.value_depth, key)
        value = log[logged] if logged in log else sources.get(*logged)
        assert value is not None, "a frame below the value source knows a key of it"
        return value

    batches = []
    entries = list(log.items())
    if len(entries) > 1:
        entries.sort(key=_depth_of, reverse=True)
    for (depth, key), old in entries:
        new = sources.get(depth, key)
        step = plan.steps[depth]
        if old == new or (not step.is_value and (old is None) == (new is None)):
            continue
        match = step.match(key)
        assert match is not None, "only keys of the pattern are logged"
        updaters = context.frames[depth].get(step.frame_key_of(key, match))
        waiting = () if updaters is None else updaters.contexts.get(context, ())
        for extras in (None,) if waiting is None else tuple(waiting):
            frame = Frame(depth, extras, match, value_of)
            execution = Execution(
                plan,
                context.environment.copy(),
                context.first,
                context.last,
                sources,
                is_unique=join.is_unique,
                has_frames=True,
            )
            if old is not None:
                batches.append((-1, execution.resume(frame, key, old)))
            if new is not None:
                batches.append((1, execution.resume(frame, key, new)))
    return batches


def _depth_of(entry: tuple[tuple[int, bytes], bytes | None]) -> int:
    return entry[0][0]
