"""Leases of readers that open no catalog: tasks on other machines, whose driver keeps no process between them.

    driver      lock of the snapshot held -> leases/3f9a01bc77d0.json written -> lock given back
    task        begins: renewed, and again each quarter of its time while the task runs
    expire      raises the floor -> locks read -> leases read: files of snapshots that either names stay

A lease ends when nobody has renewed it for its time. That is measured by the clock of the store of the files alone: a
sweep writes a file of its own, and compares the moments of both.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from pequod_lake.errors import LakeError, LeaseLostError
from pequod_lake.store import LakeFiles

_FOLDER: Final = "leases"
_CLOCK: Final = "now-"
#: Stores tell moments by the second.
_SLACK_S: Final = 2.0
_LEASE_BYTES_MAX: Final = 1 << 20
#: Files that are there for a moment are left alone for so long.
_PASSING_S: Final = 3600.0
#: A lease is renewed so often in its time.
_RENEWALS: Final = 4


@dataclass(frozen=True, slots=True)
class ReadLease:
    """The right to read the files of some snapshots."""

    path: str
    numbers: tuple[int, ...]
    #: The seconds that it lasts from its last renewal.
    lease_s: float


def take_lease(files: LakeFiles, numbers: Sequence[int], lease_s: float) -> ReadLease:
    """Return a lease of snapshots.

    Requires:
        The caller holds locks of the snapshots; or it sees later that the floor is not above them.

    Raises:
        LakeError: It cannot be written.
    """
    lease = ReadLease(f"{_FOLDER}/{secrets.token_hex(6)}.json", tuple(numbers), lease_s)
    files.put(lease.path, _content(lease))
    return lease


@contextmanager
def renewed(files: LakeFiles, lease: ReadLease, what: str) -> Iterator[None]:
    """Keep a lease until the block ends, and for its time after that.

    Args:
        what: What is read, for the message.

    Raises:
        LeaseLostError: It ran out, and a sweep has come by.
        LakeError: The store cannot be reached.
    """
    try:
        files.part(lease.path, 0, 1)
    except FileNotFoundError as error:
        raise LeaseLostError(what, lease.lease_s) from error
    except OSError as error:
        raise files.failure(lease.path, "be read", error) from error
    with kept(files, lease.path, _content(lease), lease.lease_s):
        yield


@contextmanager
def kept(files: LakeFiles, path: str, content: bytes, lease_s: float) -> Iterator[None]:
    """Write a file now, and again and again until the block ends.

    Raises:
        LakeError: It cannot be written now; later, it is tried again.
    """
    files.put(path, content)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(lease_s / _RENEWALS):
            with suppress(LakeError):
                files.put(path, content)

    thread = threading.Thread(target=work, name="lake-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def end_lease(files: LakeFiles, lease: ReadLease) -> None:
    """Give the right up."""
    files.remove(lease.path)


def leased_numbers(files: LakeFiles) -> set[int]:
    """Return the snapshots of the leases, and delete those that ran out.

    Raises:
        LakeError: The store cannot be reached.
    """
    numbers = set[int]()
    # Most lakes have none, and need no file for the clock.
    if not files.listed(_FOLDER):
        return numbers
    for path, age_s in aged(files, _FOLDER):
        try:
            told = json.loads(files.part(path, 0, _LEASE_BYTES_MAX))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise files.failure(path, "be read", error) from error
        if age_s > told["lease_s"] + _SLACK_S:
            files.remove(path)
        else:
            numbers.update(told["numbers"])
    return numbers


def aged(files: LakeFiles, folder: str) -> list[tuple[str, float]]:
    """Return the files below a folder, each with the seconds since its last change; 0 for all if the disk is full.

    Raises:
        LakeError: The store cannot be reached.
    """
    clock = f"{folder}/{_CLOCK}{secrets.token_hex(6)}"
    with suppress(LakeError):
        files.put(clock, b"")
    found = dict(files.listed(folder))
    now_s = found.get(clock, 0.0)
    with suppress(LakeError):
        files.remove(clock)
    ages = {path: max(0.0, now_s - moment_s) for path, moment_s in found.items()}
    passing = [path for path in ages if PurePosixPath(path).name.startswith((_CLOCK, "."))]
    for path in passing:
        # Of another sweep, or on its way; the old ones are of processes that were killed.
        if ages.pop(path) > _PASSING_S:
            files.remove(path)
    return list(ages.items())


def _content(lease: ReadLease) -> bytes:
    return json.dumps({"numbers": lease.numbers, "lease_s": lease.lease_s}).encode()
