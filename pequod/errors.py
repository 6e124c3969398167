"""All exceptions of Pequod. `PequodError` is the root; each carries its facts as attributes."""

from pequod.engine.errors import (
    ComputedKeyError,
    InvalidKeyError,
    JoinError,
    LimitExceededError,
    NotWatchableError,
    PequodError,
    Span,
    UnknownJoinError,
)

__all__ = [
    "ClosedError",
    "ComputedKeyError",
    "DeadlineExceededError",
    "InvalidKeyError",
    "JoinError",
    "LimitExceededError",
    "NotWatchableError",
    "PequodError",
    "Span",
    "UnavailableError",
    "UnknownJoinError",
    "WatchCompactedError",
]


class UnavailableError(PequodError):
    """No server answers at the target, or it went away; whether writes under way were applied is not known."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"no server at {target}: {reason}; start one with `pequod serve`, or name another target")
        self.target = target
        self.reason = reason


class DeadlineExceededError(PequodError):
    """The server did not answer in time; whether writes under way were applied is not known."""

    def __init__(self, target: str, timeout_s: float) -> None:
        super().__init__(f"{target} did not answer within {timeout_s:g} s; raise timeout_s if that is expected")
        self.target = target
        self.timeout_s = timeout_s


class ClosedError(PequodError):
    """The client has been closed."""

    def __init__(self) -> None:
        super().__init__("this client has been closed; make another one")


class WatchCompactedError(PequodError):
    """A watch cannot go on where it was: some changes are not there any more. Start again, with the rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the watch cannot go on: {reason}; start again, with the rows")
        self.reason = reason
