"""What a lake refuses or cannot do, each with its facts as attributes."""

from __future__ import annotations

from pequod.errors import PequodError


class LakeError(PequodError):
    """Anything that a lake refuses or cannot do."""


class LakeSchemaError(LakeError):
    """The schema file, or a name that a call took from it, is not right."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place}: {reason}")
        self.place = place
        self.reason = reason


class LakeExistsError(LakeError):
    """A place holds a lake already, or something else."""

    def __init__(self, place: str) -> None:
        super().__init__(f"{place} is not empty; `pequod lake init` makes a lake where nothing is")
        self.place = place


class NoLakeError(LakeError):
    """A place holds no lake that this version reads."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(f"{place} is no lake: {reason}")
        self.place = place
        self.reason = reason


class UploadRefusedError(LakeError):
    """Rows of an upload cannot be taken; nothing of the upload was kept."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(f"table {table}: {reason}; nothing of the upload was kept")
        self.table = table
        self.reason = reason


class LakeBusyError(LakeError):
    """The lake takes no more rows at the moment; nothing of the upload was kept, and it may be sent again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the lake is busy: {reason}; send the upload again a little later")
        self.reason = reason


class LakeUnreachableError(LakeBusyError):
    """The catalog's server, or the store of the files, does not answer as it should; nothing was kept."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        what = "see that it runs, and that the address, the name and the password are right; then try again"
        self.args = (f"the lake is out of reach: {reason}; {what}",)


class WriterLostError(LakeBusyError):
    """A writer was taken for dead, so its files may be deleted: the catalog takes none of them."""

    def __init__(self, writer: str) -> None:
        super().__init__(f"writer {writer} was taken for dead while it was stopped or cut off")
        self.writer = writer


class LakeCorruptError(LakeError):
    """A file is gone, cut short, or holds other bytes than were written: no rows of it are given."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"file {path}: {reason}; try `pequod lake repair`, else restore it from a copy")
        self.path = path
        self.reason = reason


class LakeStaleError(LakeError):
    """An SCU that a query asked for is not in the lake."""

    def __init__(self, scu: int, newest: int) -> None:
        super().__init__(f"SCU {scu} is not in the lake; the newest is {newest}")
        self.scu = scu
        self.newest = newest


class SnapshotGoneError(LakeError):
    """A past state of the lake is not kept any more, or never was."""

    def __init__(self, asked: str, oldest: int) -> None:
        super().__init__(f"{asked} is not kept; the oldest snapshot that is kept is {oldest}")
        self.asked = asked
        self.oldest = oldest


class NoSuchScuError(SnapshotGoneError):
    """The lake has no SCU of this number: it is below 0, or above the newest one."""

    def __init__(self, scu: int, newest: int) -> None:
        LakeError.__init__(self, f"there is no SCU {scu}; the newest one is SCU {newest}")
        self.asked = f"SCU {scu}"
        self.oldest = 0


class LeaseLostError(LakeError):
    """Nobody has read for so long what a lease kept, or written what it covered, that it may be deleted."""

    def __init__(self, what: str, lease_s: float) -> None:
        super().__init__(
            f"{what} may have been deleted: nobody has used it for {lease_s:g} s; begin again, and set the option "
            "`lease` to more seconds if that is not enough"
        )
        self.what = what
        self.lease_s = lease_s


class StepLostError(LakeError):
    """Another worker has done a step first, so the result of this one is not needed."""

    def __init__(self, runs: tuple[int, ...]) -> None:
        super().__init__(f"the runs {', '.join(map(str, runs))} have been replaced by another worker")
        self.runs = runs
