"""All exceptions of Pequod. `PequodError` is the root; each carries its facts as attributes."""

from typing import Final

from pequod.engine.errors import (
    BackedKeyError,
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
    "BackedKeyError",
    "ClosedError",
    "ComputedKeyError",
    "DeadlineExceededError",
    "InvalidKeyError",
    "JoinError",
    "LimitExceededError",
    "NotWatchableError",
    "PequodError",
    "PermissionDeniedError",
    "SettingError",
    "Span",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownJoinError",
    "WatchCompactedError",
]


class UnavailableError(PequodError):
    """No server answers at the target, or it went away."""

    def __init__(self, target: str, reason: str, *, is_unapplied: bool = False) -> None:
        hint = "start one with `pequod serve`, or name another target"
        if "handshake failed" in reason:
            hint = "see that `ca` is the authority of the server's certificate, and that it is made out to this name"
        elif "failed to connect" in reason and "Socket closed" in reason:
            hint = (
                f"{hint}; a server that wants TLS, or a client certificate, closes connections without it like this, "
                "and so does one that has `connections_max` of them"
            )
        super().__init__(f"no server at {target}: {reason}; {hint}")
        self.target = target
        self.reason = reason
        #: What was asked for was certainly not done: the server was not reached, or says so. Otherwise nothing is
        #: known of writes that were under way.
        self.is_unapplied = is_unapplied


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


class SettingError(PequodError):
    """A setting that cannot be used: a file that is not there, a value that is not safe."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class UnauthenticatedError(PequodError):
    """The server does not know who calls: no token or certificate that it takes."""


class PermissionDeniedError(PequodError):
    """The caller's role has not the right that a call needs."""

    #: Bounds are shown and sent up to this length; rights stand on prefixes, which are shorter.
    BOUND_BYTES_MAX: Final = 256

    def __init__(self, role: str, right: str, first: bytes, last: bytes | None) -> None:
        self.role = role
        #: read, write, join or admin.
        self.right = right
        #: Where it is needed; a single key is the range up to the key and a zero byte.
        self.first = first[: self.BOUND_BYTES_MAX]
        self.last = None if last is None else last[: self.BOUND_BYTES_MAX]
        where = f"the key {self.first!r}" if last == first + b"\0" else f"all of [{self.first!r}, {_end(self.last)})"
        super().__init__(
            f"role {role!r} lacks the right {right!r} on {where}; an operator can grant it in the access file"
        )


def _end(last: bytes | None) -> str:
    return "end" if last is None else repr(last)
