"""All exceptions of Pequod. `PequodError` is the root; each carries its facts as attributes."""

from collections.abc import Sequence
from typing import Final, Self

from pequod.escapes import shown
from pequod.language.errors import (
    BackedKeyError,
    BackfillEndedError,
    ComputedKeyError,
    InvalidConditionError,
    InvalidDeltaError,
    InvalidKeyError,
    InvalidPieceError,
    InvalidTtlError,
    JoinError,
    LimitExceededError,
    NoDeadlineError,
    NotBackfillableError,
    NotNumberError,
    NotReplaceableError,
    NotWatchableError,
    PequodError,
    QuotaExceededError,
    ReplacementEndedError,
    Span,
    SumTooLongError,
    TransactionError,
    UnknownJoinError,
)

__all__ = [
    "BackedKeyError",
    "BackfillEndedError",
    "BackingStaleError",
    "BackingUnavailableError",
    "BadRequestError",
    "ClosedError",
    "ClusterMapError",
    "ComputedKeyError",
    "CoordinatorUnavailableError",
    "DeadlineExceededError",
    "DiskFullError",
    "InvalidConditionError",
    "InvalidDeltaError",
    "InvalidKeyError",
    "InvalidPieceError",
    "InvalidTokenError",
    "InvalidTtlError",
    "JoinError",
    "LimitExceededError",
    "MapChangedError",
    "MapFixedError",
    "MixedWriteError",
    "NoClusterError",
    "NoDeadlineError",
    "NotBackfillableError",
    "NotHomeError",
    "NotNumberError",
    "NotReplaceableError",
    "NotWatchableError",
    "PackError",
    "PequodError",
    "PermissionDeniedError",
    "QuotaExceededError",
    "ReplacementEndedError",
    "SchemaError",
    "SettingError",
    "SnapshotError",
    "Span",
    "StaleError",
    "SumTooLongError",
    "TokenLostError",
    "TransactionError",
    "UnassignedKeyError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownBackfillError",
    "UnknownJoinError",
    "WatchCompactedError",
    "WriteRefusedError",
]


class UnavailableError(PequodError):
    """No server answers at the target, or it went away."""

    def __init__(self, target: str, reason: str, *, is_unapplied: bool = False, has_writes: bool = False) -> None:
        hint = "start one with `pequod serve`, or name another target"
        if "handshake failed" in reason:
            hint = "see that `ca` is the authority of the server's certificate, and that it is made out to this name"
        elif "failed to connect" in reason and "Socket closed" in reason:
            hint = (
                f"{hint}; a server that wants TLS, or a client certificate, closes connections without it like this, "
                "and so does one that has `connections_max` of them"
            )
        fate = " (whether writes under way were applied is not known)" if has_writes and not is_unapplied else ""
        super().__init__(f"no server at {target}: {reason}{fate}; {hint}")
        self.target = target
        self.reason = reason
        #: Whether the request certainly was not applied: the server was not reached, or says so. Otherwise the fate of
        #: writes that were under way is unknown.
        self.is_unapplied = is_unapplied

    def of(self, *, writes: bool) -> Self:
        """Return this error for commands that change something, or for those that do not."""
        return type(self)(self.target, self.reason, is_unapplied=self.is_unapplied, has_writes=writes)


class DeadlineExceededError(PequodError):
    """The server did not answer in time; whether writes under way were applied is unknown."""

    def __init__(self, target: str, timeout_s: float) -> None:
        super().__init__(f"{target} did not answer within {timeout_s:g} s; raise timeout_s if that is expected")
        self.target = target
        self.timeout_s = timeout_s


class ClosedError(PequodError):
    """The client has been closed."""

    def __init__(self) -> None:
        super().__init__("this client has been closed; make another one")


class ClusterMapError(PequodError):
    """The map of a cluster, or what is said of one of its servers, cannot be."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


class CoordinatorUnavailableError(PequodError):
    """The coordinator of the cluster does not answer, or refuses: the map stays as it is, and all else goes on."""

    def __init__(self, coordinator: str, reason: str, *, is_refusal: bool = False) -> None:
        if is_refusal:
            super().__init__(f"{coordinator} refuses: {reason}; the map stays as it is")
        else:
            super().__init__(f"{coordinator} does not answer: {reason}; the map cannot be changed until it does")
        #: Whether it has answered: another attempt is refused, too, unless its operator does something.
        self.is_refusal = is_refusal
        self.coordinator = coordinator
        self.reason = reason


class MapChangedError(PequodError):
    """The map of the cluster was changed by others meanwhile; look at it and try again."""

    def __init__(self, version: int) -> None:
        present = f"its version is {version} now" if version else "there is none now"
        super().__init__(f"the map of the cluster was changed meanwhile: {present}; look at it and try again")
        #: Of the present map; 0 if there is none.
        self.version = version


class MapFixedError(PequodError):
    """The map of the cluster is a file, which no server changes."""

    def __init__(self, place: str, version: int) -> None:
        super().__init__(
            f"the map of the cluster is the file {place}, which only an operator changes: edit it, give it version "
            f"{version}, and copy it to all servers"
        )
        self.place = place
        #: That the next map has to have.
        self.version = version


class NoClusterError(PequodError):
    """The server belongs to no cluster."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no cluster here: {reason}; give the address of one of its servers")
        self.reason = reason


class NotHomeError(PequodError):
    """A write went to a server that is no home of its key; nothing was written. The map may have changed."""

    def __init__(self, key: bytes, map_version: int) -> None:
        super().__init__(
            f"{shown(key)} belongs to no home group of this server, by version {map_version} of the cluster's map; "
            "write it to a home of its range, or try again if the range is moving"
        )
        self.key = key
        #: Of the map that the server goes by.
        self.map_version = map_version


class WatchCompactedError(PequodError):
    """A watch cannot continue: some changes are not there any more. Start again, with the rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the watch cannot go on: {reason}; start again, with the rows")
        self.reason = reason


class MixedWriteError(PequodError):
    """The keys of a write that is all or nothing belong to several databases, or to one and to the cache itself.

    Nothing was written.
    """

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} has keys of a database behind this cache and others, and cannot be all or nothing for both; "
            "write them in calls of their own"
        )
        #: The call, or its range of keys.
        self.place = place


class UnassignedKeyError(PequodError):
    """The table of a key belongs to databases, and none of those that this server knows has the key's range."""

    def __init__(self, key: bytes) -> None:
        hint = f"in a cluster by `pequod cluster add-home PLACE GROUP {shown(key.partition(b'|')[0])}`"
        super().__init__(f"{shown(key)} lies in no range of the databases behind this server; give it to one, {hint}")
        self.key = key


class SnapshotError(PequodError):
    """A snapshot cannot be saved or restored; nothing was changed."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"snapshot {place}: {reason}")
        #: The file, or the setting without which there is none.
        self.place = place
        self.reason = reason


class DiskFullError(PequodError):
    """The disk of the server's data has no room: nothing of the write is applied. Reads go on."""

    def __init__(self, folder: str, free_bytes: int) -> None:
        super().__init__(
            f"the disk of {folder} is full ({free_bytes} bytes are free): writes and removals are refused until other "
            "files make room, or the disk grows"
        )
        self.folder = folder
        #: How many bytes were free when the server looked last.
        self.free_bytes = free_bytes


class UnknownBackfillError(PequodError):
    """The server knows no such backfill: it was restarted, or the backfill ended long ago."""

    def __init__(self, number: int) -> None:
        hint = "it may have been started anew: `pequod backfill status` shows what it knows"
        super().__init__(f"the server knows no backfill {number:x}; {hint}")
        self.number = number


class SettingError(PequodError):
    """A setting that cannot be used: a file that does not exist, a value that is not safe."""

    def __init__(self, setting: str, reason: str) -> None:
        super().__init__(f"{setting}: {reason}")
        self.setting = setting
        self.reason = reason


class BadRequestError(PequodError):
    """A malformed request: not a message, or its parts do not fit together."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def refuse_empty_watch(first: bytes, last: bytes | None) -> None:
    """Pass if something may change in the range that is to be watched.

    Raises:
        BadRequestError: The range is empty, and its watch would wait for ever.
    """
    if last is not None and last <= first:
        raise BadRequestError("a watch of an empty range tells nothing: its first key must come before its last")


class UnauthenticatedError(PequodError):
    """The server does not know the caller: it accepts no token or certificate of the call."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PermissionDeniedError(PequodError):
    """The caller's role lacks a right that a call needs."""

    #: Bounds are shown and sent up to this length; rights are on prefixes, which are shorter.
    BOUND_BYTES_MAX: Final = 256

    def __init__(self, role: str, right: str, first: bytes, last: bytes | None) -> None:
        self.role = role
        #: read, write, join, admin or feed; as plain text, so that messages show it as the access file spells it.
        self.right = str(right)
        #: The range of keys that needs it; a single key is the range up to the key and a zero byte.
        self.first = first[: self.BOUND_BYTES_MAX]
        self.last = None if last is None else last[: self.BOUND_BYTES_MAX]
        start = _bound(self.first)
        where = f"the key {start}" if last == first + b"\0" else f"all of [{start}, {_end(self.last)})"
        super().__init__(
            f"role {role!r} lacks the right {self.right!r} on {where}; an operator can grant it in the access file"
        )


class SchemaError(PequodError):
    """The database does not have what the mappings need."""

    def __init__(self, store: str, problems: Sequence[str]) -> None:
        super().__init__(f"{store} does not fit the mapping:\n" + "\n".join(f"  - {problem}" for problem in problems))
        self.store = store
        #: One sentence each: the fault and how to correct it.
        self.problems = tuple(problems)


class PackError(PequodError):
    """A row makes no key under its mapping, or a key and value make no row."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        #: The column, or the key.
        self.place = place
        self.reason = reason


class BackingUnavailableError(PequodError):
    """The database, or the home group of the keys, does not answer; repeat the request later."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} is not available: {reason}")
        self.store = store
        self.reason = reason


class StaleError(PequodError):
    """The server could not be as fresh as a read asked for within the time that the read waits; ask again later."""

    def __init__(self, age_s: float | None, wait_s: float, reason: str) -> None:
        age = "of unknown age" if age_s is None else f"{age_s:.1f} s old"
        super().__init__(
            f"not as fresh as asked for after {wait_s:g} s, and what is there is {age}: {reason}; wait longer, or "
            "take an older answer"
        )
        #: Everything that was committed longer ago is there; None if that is not known.
        self.age_s = age_s
        self.wait_s = wait_s
        self.reason = reason


class TokenLostError(PequodError):
    """The state that a token names is lost, or was never here: writes may be gone. Go on without the token."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the state of the token is not to be had: {reason}; go on without the token")
        self.reason = reason


class InvalidTokenError(PequodError):
    """What is given for a token is none."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"this is no token: {reason}; pass it on as a reply gave it")
        self.reason = reason


class BackingStaleError(PequodError):
    """The cached rows of the database may be older than the server's settings allow."""

    def __init__(self, age_s: float, stale_max_s: float, reason: str) -> None:
        why = f" ({reason})" if reason else ""
        super().__init__(
            f"the feed of the database is {age_s:.1f} s old{why}, and backing_stale_max_s is {stale_max_s:g}; try "
            "again when it is back"
        )
        self.age_s = age_s
        self.stale_max_s = stale_max_s
        self.reason = reason


class WriteRefusedError(PequodError):
    """The database refused a write, for instance because of a constraint; nothing was written."""

    def __init__(self, store: str, reason: str) -> None:
        super().__init__(f"{store} refused the write: {reason}")
        self.store = store
        self.reason = reason


def _bound(bound: bytes) -> str:
    return shown(bound, bytes_max=PermissionDeniedError.BOUND_BYTES_MAX)


def _end(last: bytes | None) -> str:
    return "end" if last is None else _bound(last)
