"""Lists of files (MANIFEST) that have lost their end: rows are all there, or the start is refused.

RocksDB removes a log once the list names the file of its rows; a list that loses this entry afterwards opens without
them. Each list here is cut at the end of each of its entries, after flushes that nobody but RocksDB knows of.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from pequod_server.data import library, tools
from pequod_server.data.errors import DamagedError
from pequod_server.data.folder import Folder
from pequod_server.data.gaps import gap
from pequod_server.data.library import Logs
from pequod_server.data.opening import judged, open_rows
from pequod_server.data.rows import StoredRows

from tests.disk.damages import outcome
from tests.disk.folders import Base, contents, killed


class Writing:
    """A folder that is written, with what it has to have."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.base = Base()
        self.folder = Folder(path)
        self.rows = open_rows(self.folder)
        self.position = self.rows.meta().position

    def write(self, key: bytes) -> None:
        """Write a row as a server does."""
        self.position += 1
        self.base[key] = b"%d" % self.position
        self.rows.write({key: self.base[key]}, self.position)
        self.folder.note.written = self.position

    def flush(self) -> None:
        """Have RocksDB write what it has in memory to a file, and remove the log."""
        self.rows._database.flush()

    def close(self) -> None:
        """Close the rows as a process does that fails, without a word in the note."""
        self.rows.close()
        self.folder.close()

    def reopen(self) -> None:
        """Close and open it."""
        self.close()
        self.folder = Folder(self.path)
        self.rows = open_rows(self.folder)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Writing]:
    found = Writing(tmp_path / "data")
    yield found
    found.close()


def list_of(path: Path) -> Path:
    """Return the list of files of a folder."""
    return path / "rows" / (path / "rows" / "CURRENT").read_text().strip()


def ends(content: bytes) -> list[int]:
    """Return where the entries of a list end: each has its sum (4 bytes), its length (2) and its kind (1) before it."""
    found, at = [], 0
    while at + 7 <= len(content):
        at += 7 + int.from_bytes(content[at + 4 : at + 6], "little")
        found.append(at)
    return found


def cut(path: Path, end: int) -> None:
    """Cut the list of a folder off."""
    list_of(path).write_bytes(list_of(path).read_bytes()[:end])


def refused_of_all_cuts(path: Path, base: Base) -> list[str]:
    """Open copies of a folder, each with a list that lost its end otherwise; return why the refused ones are."""
    reasons = []
    for end in ends(list_of(path).read_bytes())[:-1]:
        copy = shutil.copytree(path, path.with_suffix(".cut"))
        cut(copy, end)
        reasons.append(outcome(copy, base))
        shutil.rmtree(copy)
    return [reason for reason in reasons if reason]


def test_rows_of_a_flush_whose_entry_is_gone_are_missed(writing: Writing, tmp_path: Path) -> None:
    writing.write(b"flushed")
    writing.flush()
    writing.write(b"in the log")
    path = killed(writing.path, tmp_path / "killed")
    cut(path, ends(list_of(path).read_bytes())[-2])
    with pytest.raises(DamagedError, match=r"which is gone, and .* the list has lost its end") as caught:
        contents(path)
    assert caught.value.place == list_of(path)
    with pytest.raises(DamagedError, match="the list has lost its end"):
        tools.check(path)
    repaired = tools.repair(path)
    assert repaired.kept is not None
    assert contents(path) == writing.base, "the file is found though no list names it"


@pytest.mark.parametrize(
    ("found", "noted", "is_opening", "reason"),
    [
        ((12, 12), (8, 10), False, ""),
        ((8, 10), (8, 10), False, ""),
        ((8, 0), (8, 10), False, ""),
        ((8, 12), (8, 10), False, "asks for 000010.log, which is gone, and 000012.log is there"),
        ((12, 15), (8, 10), False, "asks for 000012.log, which is gone, and 000015.log is there"),
        ((7, 10), (8, 10), False, "an old one: it asks for 000007.log, and a later one asked for 000008.log"),
        ((12, 15), (8, 10), True, ""),
        ((8, 15), (8, 10), True, "asks for 000010.log, which is gone, and 000015.log is there"),
        ((8, 12), (8, 0), True, ""),
        ((8, 12), None, False, ""),
    ],
)
def test_a_list_asks_for_a_log_that_is_there(
    found: tuple[int, int], noted: tuple[int, int] | None, is_opening: bool, reason: str
) -> None:
    told = gap(Logs(*found), noted and Logs(*noted), is_opening=is_opening)
    assert reason in told and bool(reason) == bool(told)


@pytest.mark.parametrize(("seed", "bytes_max"), [(0, library.LIST_BYTES_MAX), (3, library.LIST_BYTES_MAX), (0, 1)])
def test_a_list_that_has_lost_its_end_hides_no_row(
    tmp_path: Path, seed: int, bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A list that is begun anew while the rows are open, too.
    monkeypatch.setattr(library, "LIST_BYTES_MAX", bytes_max)
    writing = Writing(tmp_path / "data")
    random, refused, renewed, first = Random(seed), 0, 0, list_of(writing.path)
    for step in range(10):
        match random.randrange(4):
            case 0:
                writing.flush()
            case 1:
                writing.reopen()
                first = list_of(writing.path)
            case _:
                for _ in range(random.randrange(1, 4)):
                    writing.write(b"%d" % random.randrange(20))
        path = killed(writing.path, tmp_path / str(step))
        refused += len(refused_of_all_cuts(path, writing.base))
        assert contents(path) == writing.base, "what is right is not refused"
        renewed += first != list_of(writing.path)
    assert refused
    assert bool(renewed) == (bytes_max < library.TOLD_BYTES_MAX)
    writing.close()


def test_what_is_beside_the_rows_stays_small_while_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "LIST_BYTES_MAX", 4096)
    monkeypatch.setattr(library, "TOLD_BYTES_MAX", 32 << 10)
    random, files = Random(0), set[str]()
    with StoredRows(tmp_path / "rows", caches=library.Caches(64 << 10)) as rows:
        for position in range(1500):
            rows.write({b"%06d" % random.randrange(20_000): random.randbytes(100) for _ in range(50)}, position)
            files.update(file.name for file in (tmp_path / "rows").glob("*.log"))
        sizes = dict[str, int]()
        for file in (tmp_path / "rows").iterdir():
            # RocksDB deletes its own meanwhile.
            with suppress(FileNotFoundError):
                sizes[file.name] = file.stat().st_size if file.suffix != ".sst" else 0
    assert len(files) > 100, "many logs came and went"
    # Two logs of a buffer each, the list, and twice what RocksDB tells, each with what it was writing.
    assert sum(sizes.values()) < 2 * (64 << 10) + 2 * 4096 + 3 * (32 << 10) + (64 << 10), sizes


def test_an_opening_that_ends_midway_is_no_damage_and_hides_none(writing: Writing, tmp_path: Path) -> None:
    for number in range(3):
        writing.write(b"%d" % number)
        path = killed(writing.path, tmp_path / f"killed{number}")
        with Folder(path) as folder:
            _, logs = judged(folder)
            folder.note.opens(logs)
            before = killed(path, tmp_path / f"before{number}")
            with StoredRows(folder.rows):
                within = killed(path, tmp_path / f"within{number}")
        for midway in (before, within):
            refused_of_all_cuts(midway, writing.base)
            assert contents(midway) == writing.base
            assert contents(midway) == writing.base, "the next start has it, too"
        writing.flush()


def test_a_backup_takes_no_list_whose_log_is_gone(
    writing: Writing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "_TRIES", 2)
    writing.write(b"flushed")
    content = list_of(writing.path).read_bytes()
    writing.flush()
    writing.write(b"in the log")
    whole = list_of(writing.path).read_bytes()
    # What RocksDB reads if the file is made between its look at the list and its look for logs.
    list_of(writing.path).write_bytes(content)
    with pytest.raises(DamagedError, match="which is gone"):
        tools.backup(writing.path, tmp_path / "copy")
    list_of(writing.path).write_bytes(whole)
    tools.backup(writing.path, tmp_path / "copy")
    assert contents(tmp_path / "copy") == writing.base
