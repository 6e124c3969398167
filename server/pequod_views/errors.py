"""What goes wrong with durable views."""

from __future__ import annotations

from typing import ClassVar, Final

from pequod.errors import PequodError

#: The reason of a `TargetUnfitError`, and what a check finds, where no view is.
NOTHING_INSTALLED: Final = "nothing is installed; run `pequod views install`"


class ViewFileError(PequodError):
    """A file of views is malformed."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        #: The view, or the place in the file.
        self.place = place
        self.reason = reason


class UnfitError(PequodError):
    """A row of the server does not fit into the columns of a view."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TargetAwayError(PequodError):
    """The target database does not answer; it may come back."""

    _TEXT: ClassVar[str] = "{target} does not answer: {reason}"

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(self._TEXT.format(target=target, reason=reason))
        self.target = target
        self.reason = reason


class TargetMissingError(TargetAwayError):
    """There is no such target database. A manager waits for it all the same: it may be restored."""

    _TEXT: ClassVar[str] = "{target}: {reason}"


class TargetBusyError(TargetAwayError):
    """The target database has rolled a transaction back that was in the way of another one; the same may work next."""

    _TEXT: ClassVar[str] = "{target} has rolled a transaction back, which is done again: {reason}"


class TargetRefusedError(PequodError):
    """The target database refuses a statement: a table is not what the view needs, or a constraint is in the way."""

    _TEXT: ClassVar[str] = "{target} refuses: {reason}"

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(self._TEXT.format(target=target, reason=reason))
        self.target = target
        self.reason = reason


class TargetUnfitError(TargetRefusedError):
    """Views cannot be kept there as it is; the database was asked for nothing that it would refuse."""

    _TEXT: ClassVar[str] = "{target}: {reason}"


class OtherServerError(PequodError):
    """The server shows other data than those that a view was installed with; nothing was written."""

    def __init__(self, view: str, noted: str, found: str) -> None:
        super().__init__(
            f"{view}: this is another server than the one that the view was installed with: it shows {found}, "
            f"the table {noted or 'no server yet'}. Check the target (--target, PEQUOD_TARGET, `server` in the "
            "file); if the table is to show this server from now on, run `pequod views install --adopt`"
        )
        self.view = view
        self.noted = noted
        self.found = found


class UnverifiableError(PequodError):
    """A view cannot be compared with the server: its table, its part or its range is not as it has to be."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PartLostError(PequodError):
    """Another manager has taken the part; nothing was written."""

    def __init__(self, view: str, first: bytes) -> None:
        super().__init__(f"the part of {view} from {first!r} has been taken by another manager")
        self.view = view
        self.first = first
