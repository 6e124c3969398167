"""Differences: the rows that the changes of a log add to a context or remove from it.

log of t|ann|    s|ann|liz: absent before       loops resumed at the frame s|ann|, with liz: her posts are added
                 s|ann|bob: present before      the same with bob: his posts are removed
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pequod.engine.joins.batches import Batch, Frame
from pequod.engine.joins.contexts import Context, Log
from pequod.engine.joins.plan import FrameKey, Step
from pequod.engine.reads.asked import Sources
from pequod.engine.reads.execution import Execution

#: Keys of one source that changed, with their values before; None: absent.
_Changed = dict[bytes, bytes | None]


def differences(context: Context, log: Log, sources: Sources) -> list[tuple[int, Batch]]:
    """Return the rows that the changes of a log add to a context or remove from it.

    The deepest source comes first: at that moment, the frames of earlier sources are as they were, and the later
    sources are done. So each tuple of source keys that appeared or disappeared is met exactly once, at the shallowest
    of its changed keys.
    """
    by_depth: dict[int, _Changed] = {}
    for (depth, key), old in log.items():
        by_depth.setdefault(depth, {})[key] = old
    found = _Differences(context, log, sources)
    batches: list[tuple[int, Batch]] = []
    for depth in sorted(by_depth, reverse=True):
        step = context.plan.steps[depth]
        batches += (found.of_absences if step.is_absence else found.of_keys)(step, by_depth[depth])
    return batches


class _Differences:
    """Resumes the loops of a context at the frames of changed keys."""

    def __init__(self, context: Context, log: Log, sources: Sources) -> None:
        self._context = context
        self._log = log
        self._sources = sources

    def of_keys(self, step: Step, changed: _Changed) -> Iterator[tuple[int, Batch]]:
        """Yield the differences that keys of a source make, each by itself: first what they take away.

        Two plain keys of a check may give one row, one after the other, if they differ in the fields that they give.
        """
        gained = []
        for key, old in changed.items():
            new = self._sources.get(step.depth, key)
            if old == new or (not step.is_value and (old is None) == (new is None)):
                continue
            match, frame_key = _place(step, key)
            for frame in self._frames(step, match, frame_key):
                if old is not None:
                    yield -1, self._execution().resume(frame, key, old)
                if new is not None:
                    gained.append((1, self._execution().resume(frame, key, new)))
        yield from gained

    def of_absences(self, step: Step, changed: _Changed) -> Iterator[tuple[int, Batch]]:
        """Yield the differences that the keys of an `unless` make: those of each frame together.

        The rows of a frame are there while none of its keys is.
        """
        by_frame: dict[FrameKey, tuple[re.Match[bytes], _Changed]] = {}
        for key, old in changed.items():
            match, frame_key = _place(step, key)
            by_frame.setdefault(frame_key, (match, {}))[1][key] = old
        for frame_key, (match, before) in by_frame.items():
            for frame in self._frames(step, match, frame_key):
                present = self._execution().present(frame)
                was_blocked = any(old is not None for old in before.values()) or any(
                    key not in before for key in present
                )
                if was_blocked != bool(present):
                    yield 1 if was_blocked else -1, self._execution().resume(frame, b"", b"")

    def _frames(self, step: Step, match: re.Match[bytes], frame_key: FrameKey) -> list[Frame]:
        """Return the frames of the context that wait for a key."""
        context = self._context
        updaters = context.frames[step.depth].get(frame_key)
        waiting = () if updaters is None else updaters.contexts.get(context, ())
        # Changed rows are taken in when all differences are found.
        return [
            Frame(step.depth, extras, match, self._value_of) for extras in ((None,) if waiting is None else waiting)
        ]

    def _execution(self) -> Execution:
        context = self._context
        edge = context.kept.edge_of(b"") if context.kept is not None and context.plan.reads_ends else None
        return Execution.of(context, context.first, context.last, self._sources, edge=edge)

    def _value_of(self, key: bytes) -> bytes:
        logged = (self._context.plan.value_depth, key)
        value = self._log[logged] if logged in self._log else self._sources.get(*logged)
        assert value is not None, "a frame below the value source knows a key of it"
        return value


def _place(step: Step, key: bytes) -> tuple[re.Match[bytes], FrameKey]:
    match = step.match(key)
    assert match is not None, "only keys of the pattern are logged"
    return match, step.frame_key_of(key, match)
