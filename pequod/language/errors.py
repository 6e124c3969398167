"""Everything that the engine refuses, as exceptions with their facts as attributes.

The caller's fault or a limit is a subclass of `PequodError`; a defect of ours is an `assert`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pequod.escapes import shown

#: The longest text of a key in a message: a server's refusal must fit into the metadata of a gRPC reply, 8 KiB.
_SENTENCE_MAX: Final = 600
_LINE_MAX: Final = 120
_KEY_MAX: Final = 80


class PequodError(Exception):
    """Anything that Pequod refuses or cannot do; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class Span:
    """The place of a piece of a declaration in its text.

    Source:
        Ours; offsets count characters, lines and columns count from 1.
    """

    #: Offset of the first character, and of the one after the last: ``start < end``.
    start: int
    end: int
    line: int
    column: int


class JoinError(PequodError):
    """A cache join that cannot be installed: malformed, contradictory or in conflict.

    The text shows the reason, the declaration's line with a caret where the position is known, and a hint.
    """

    def __init__(self, reason: str, *, hint: str = "", span: Span | None = None, text: str | None = None) -> None:
        super().__init__(reason)
        #: The reason, in one sentence without the position.
        self.reason = _shortened(reason)
        #: How to correct it; empty if there is no advice.
        self.hint = _shortened(hint)
        #: The place, if the join came from text.
        self.span = span
        #: The whole text of the declaration, if known.
        self.text = text

    def with_text(self, text: str) -> JoinError:
        """Return the same error with the text that ``span`` points into."""
        return JoinError(self.reason, hint=self.hint, span=self.span, text=text)

    def __str__(self) -> str:
        message = self.reason
        if self.span is not None:
            message = f"line {self.span.line}, column {self.span.column}: {message}"
            if self.text is not None:
                message += "\n" + _caret(self.text, self.span)
        if self.hint:
            message += f"\nhint: {self.hint}"
        return message


def _caret(text: str, span: Span) -> str:
    lines = text.split("\n")
    line = lines[span.line - 1] if span.line <= len(lines) else ""
    column = span.column - 1
    width = max(1, min(span.end - span.start, len(line) - column))
    if len(line) > _LINE_MAX:
        left = max(0, column - _LINE_MAX // 3)
        right = left + _LINE_MAX
        line = f"{'…' if left else ''}{line[left:right]}{'…' if right < len(line) else ''}"
        column -= left - bool(left)
        width = max(1, min(width, len(line) - column))
    margin = "".join("\t" if c == "\t" else " " for c in line[:column])
    return f"    {line}\n    {margin}{'^' * width}"


def _shortened(sentence: str) -> str:
    """Return a sentence, without its middle if a very long name makes it too long."""
    half = _SENTENCE_MAX // 2
    return sentence if len(sentence) <= _SENTENCE_MAX else f"{sentence[:half]} … {sentence[-half:]}"


class UnknownJoinError(PequodError):
    """No installed join has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no join is named {name[:_KEY_MAX]!r}; `pequod join list` shows the names")
        self.name = name


class ComputedKeyError(PequodError):
    """A client tried to write a key that an installed join computes."""

    def __init__(self, key: bytes, join: str) -> None:
        super().__init__(
            f"key {shown(key)} is computed by the join {join!r} and cannot be written; write its sources, or drop "
            "the join"
        )
        self.key = key
        self.join = join


class InvalidConditionError(PequodError):
    """A condition of a write whose number stands for none."""

    def __init__(self, number: int) -> None:
        super().__init__(f"there is no condition {number}; 1 is that the key is absent, 2 present, 3 of a value")
        self.number = number


class TransactionError(PequodError):
    """A transaction that cannot run as it is; nothing was done."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(f"{reason}\nhint: {hint}")
        #: What is wrong with it.
        self.reason = reason
        #: How to say it instead.
        self.hint = hint


class InvalidDeltaError(PequodError):
    """What a client wants to add is no number."""

    def __init__(self, delta: bytes) -> None:
        super().__init__(
            f"{shown(delta[:_KEY_MAX])} is no number that can be added; write it in plain digits, as -12 or 0.5, in up "
            "to 64 bytes"
        )
        self.delta = delta


class NotNumberError(PequodError):
    """A client tried to add to a key whose value is no number."""

    def __init__(self, key: bytes) -> None:
        super().__init__(f"the value of key {shown(key)} is no number, so nothing was added; put a number first")
        self.key = key


class SumTooLongError(PequodError):
    """A client tried to add to a key, and the sum would have too many digits."""

    def __init__(self, key: bytes, maximum: int) -> None:
        super().__init__(
            f"the sum for key {shown(key)} would take more than {maximum} bytes, so nothing was added; use numbers of "
            "fewer digits"
        )
        self.key = key
        self.maximum = maximum


class InvalidTtlError(PequodError):
    """A time to live that no key can have."""

    def __init__(self, ttl: str, rule: str) -> None:
        super().__init__(f"a time to live of {ttl}: {rule}")
        #: What was asked for, with its unit.
        self.ttl = ttl
        self.rule = rule


class NoDeadlineError(PequodError):
    """A deadline for a key of a database whose table has no column of deadlines."""

    def __init__(self, key: bytes) -> None:
        super().__init__(
            f"key {shown(key)} is of a database that keeps no deadlines of it; name a column for them in the mapping "
            "(`expires`), or write it under a table that no database owns"
        )
        self.key = key


class BackedKeyError(PequodError):
    """A client tried to write a key that a database behind the cache owns."""

    def __init__(self, key: bytes) -> None:
        super().__init__(
            f"key {shown(key)} belongs to the database behind this cache and cannot be written here; write it to the "
            "database, or run the server with backing_mode write-through"
        )
        self.key = key


class NotWatchableError(PequodError):
    """A client asked to watch a range whose changes are not known when they happen."""

    def __init__(self, join: str, reason: str) -> None:
        super().__init__(f"keys of the join {join!r} cannot be watched: {reason}; declare it as push, or scan it")
        self.join = join
        self.reason = reason


class NotBackfillableError(PequodError):
    """A client asked to backfill a join whose rows only the server can compute, or which keeps none."""

    def __init__(self, join: str, reason: str) -> None:
        super().__init__(f"the join {join!r} cannot be backfilled: {reason}")
        self.join = join
        self.reason = reason


class BackfillEndedError(PequodError):
    """Rows came for a backfill that has ended; the rows that were loaded before stay."""

    def __init__(self, join: str, reason: str) -> None:
        super().__init__(f"the backfill of the join {join!r} has ended: {reason}")
        self.join = join
        self.reason = reason


class NotReplaceableError(PequodError):
    """A client asked to put a join in the place of another, which cannot be done now."""

    def __init__(self, join: str, reason: str) -> None:
        super().__init__(f"the join {join!r} cannot be replaced: {reason}")
        self.join = join
        self.reason = reason


class ReplacementEndedError(PequodError):
    """A join has not taken the place of another; that one computes its keys as before."""

    def __init__(self, join: str, reason: str) -> None:
        super().__init__(f"the join {join!r} is as it was, since its replacement has ended: {reason}")
        self.join = join
        self.reason = reason


class InvalidPieceError(PequodError):
    """Rows that a backfill cannot take in."""

    def __init__(self, first: bytes, last: bytes, reason: str) -> None:
        super().__init__(f"the rows of {shown(first)} .. {shown(last)} cannot be loaded: {reason}")
        self.first = first
        self.last = last
        self.reason = reason


class InvalidKeyError(PequodError):
    """A key that the store cannot hold, such as the empty one."""

    def __init__(self, key: bytes, reason: str) -> None:
        super().__init__(f"key {shown(key)} is not valid: {reason}")
        self.key = key
        self.reason = reason


#: Settings that bound what all calls take together. What is above such a limit is not the size of one request.
_SHARED_LIMITS: Final = frozenset({"memory_limit", "messages_bytes_max"})


class LimitExceededError(PequodError):
    """A size above a configured limit: that of one request, or of all that the limit is for, with this request.

    Args:
        advice: What else to do than to raise the limit, if to send or read less is not the way.
    """

    def __init__(self, setting: str, size: int, maximum: int, advice: str | None = None) -> None:
        is_shared = setting in _SHARED_LIMITS
        needs = f"with this at least {size} bytes would be in use" if is_shared else f"this needs {size}"
        way_out = advice or ("send or read less at a time" if is_shared else "send less")
        super().__init__(f"{setting} is {maximum}, and {needs}; {way_out}, or raise {setting}")
        #: The name of the setting to raise.
        self.setting = setting
        self.size = size
        self.maximum = maximum
        self.advice = advice

    @property
    def is_of_memory(self) -> bool:
        """Whether memory has no room: smaller parts may have."""
        return self.setting == "memory_limit"

    def with_advice(self, advice: str) -> LimitExceededError:
        """Return the same error with what else to do than to raise the limit."""
        return LimitExceededError(self.setting, self.size, self.maximum, advice)


#: The things that each quota counts, and the ways to get below it if time alone does not help.
_COUNTED: Final = {
    "calls_per_s": "calls and commands a second",
    "watches": "open watches",
    "keys": "keys in the tables that it may write",
    "bytes": "bytes of keys and values in the tables that it may write",
}
_WAYS_OUT: Final = {"watches": "end a watch", "keys": "remove keys", "bytes": "remove keys, or write shorter values"}


class QuotaExceededError(PequodError):
    """The caller's role uses all that it may: nothing of the call is applied."""

    def __init__(self, role: str, quota: str, maximum: float, retry_s: float | None = None) -> None:
        way_out = _WAYS_OUT.get(quota, "use less") if retry_s is None else f"try again in {retry_s:.3g} s"
        allowed = f"{maximum:.15g} {_COUNTED.get(quota, quota)}"
        super().__init__(f"role {role!r} is allowed {allowed} ({quota}), and this would be more; {way_out}")
        self.role = role
        #: calls_per_s, watches, keys or bytes, as the access file spells it.
        self.quota = quota
        self.maximum = maximum
        #: After this time the call may pass; None: time alone does not help.
        self.retry_s = retry_s
