"""Faults that `planted` puts into what `unless`, `keep`, `.` and replacements are kept by, one at a time.

Each is a slip that a hand could make: a place, as text that its file has once, and what stands there instead.
"""

from typing import Final, NamedTuple


class PythonFault(NamedTuple):
    """A fault, and what goes wrong with it."""

    #: Below the folder of the engine.
    file: str
    right: str
    wrong: str
    breaks: str


FAULTS: Final = (
    PythonFault(
        "joins/capped.py",
        "        elif spare is not None:\n            self.short[group] = None\n",
        "",
        "a group from which rows go is never filled again",
    ),
    PythonFault(
        "joins/capped.py",
        "return widen(self._match, first, last)",
        "return Range(first, last)",
        "a part of a group keeps as many rows as all of it",
    ),
    PythonFault(
        "joins/capped.py",
        "cut = max(start, at - self.count) if self.is_last else min(at, start + self.count)",
        "cut = max(start, at - self.count - 1) if self.is_last else min(at, start + self.count)",
        "a group that is computed keeps a row too many",
    ),
    PythonFault(
        "joins/capped.py",
        "if edge is not None and cap.is_beyond(tail, edge):\n            return []\n",
        "if edge is not None and False:\n            return []\n",
        "a row beyond what is known is taken for the next one",
    ),
    PythonFault(
        "joins/capped.py",
        "        self._lose(context)\n        self._tails.release([tail])\n        changes",
        "        self._lose(context)\n        changes",
        "tails of rows that are gone stay",
    ),
    PythonFault(
        "reads/execution.py",
        "if not self._present(depth):",
        "if len(self._present(depth)) != 1:",
        "an unless that counts: two keys are as good as none",
    ),
    PythonFault(
        "reads/execution.py",
        "in self._gather(step)) is not step.is_absence:",
        "in self._gather(step)):",
        "an unless behind the posts is a check",
    ),
    PythonFault(
        "writes/changes.py",
        "            self._dropping += [(context, Reason.DECIDED) for context in updaters.contexts]\n",
        "            pass\n",
        "a mute that comes after the first read is not heeded",
    ),
    PythonFault(
        "calls/replacing.py",
        "        self._hits.clear()\n",
        "",
        "reads go on with the rows of a join that another has replaced",
    ),
)
