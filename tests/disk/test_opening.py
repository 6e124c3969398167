"""Ends of a folder's log that are right, lost tails, and damage, which is never hidden."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from pequod_server.data.errors import DamagedError
from pequod_server.data.folder import Folder, read_about
from pequod_server.data.opening import open_rows

from tests.disk.damages import damage, outcome, written
from tests.disk.folders import Base, contents, killed, lose_machine


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Base]]:
    path = tmp_path_factory.mktemp("whole") / "data"
    yield path, written(path)


def log_of(path: Path) -> Path:
    """Return the newest log of the rows of a folder."""
    return max((path / "rows").glob("*.log"))


def small(path: Path, count: int = 50, synced: int = 0) -> Path:
    """Write a folder of a few rows, as a kill leaves it."""
    with Folder(path) as folder, open_rows(folder) as rows:
        for position in range(1, count + 1):
            rows.write({b"k%d" % position: b"v"}, position)
            folder.note.written = position
        folder.note.synced = synced
        return killed(path, path.with_name("small"))


@pytest.mark.parametrize("seed", range(50))
def test_no_damage_is_hidden(whole: tuple[Path, Base], tmp_path: Path, seed: int) -> None:
    path, base = whole
    what = damage(shutil.copytree(path, tmp_path / "data"), Random(seed))
    reason = outcome(tmp_path / "data", base)
    assert not reason or str(tmp_path) in reason or ".sst" in reason, f"{what}: the reason names the place"


def test_a_record_that_is_half_written_is_cut_off_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = small(tmp_path / "data")
    # The process ended in the middle of the next write, which it has noted nowhere.
    with log_of(path).open("ab") as log:
        log.write(log_of(path).read_bytes()[:11])
    with caplog.at_level(logging.WARNING, "pequod.data"):
        assert len(contents(path)) == 50
    (record,) = caplog.records
    assert "which is cut off" in record.getMessage()
    assert len(contents(path)) == 50, "the next start has no more to say"


def test_a_record_that_was_acknowledged_is_not_cut_off(tmp_path: Path) -> None:
    path = small(tmp_path / "data")
    data = log_of(path).read_bytes()
    log_of(path).write_bytes(data[:-3])
    with pytest.raises(DamagedError, match="its log ends at change 49, and 50 were written: 1 are missing"):
        contents(path)
    log_of(path).write_bytes(data)
    assert len(contents(path)) == 50, "nothing was changed by the start that was refused"


def test_a_log_that_is_cut_between_two_records_is_damage_too(tmp_path: Path) -> None:
    path = small(tmp_path / "data")
    data = log_of(path).read_bytes()
    # The records of this small log are all of one length.
    log_of(path).write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedError, match="are missing"):
        contents(path)


def test_a_lost_machine_loses_what_was_not_synced_and_begins_a_timeline(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = small(tmp_path / "data", synced=20)
    data = log_of(path).read_bytes()
    log_of(path).write_bytes(data[: len(data) * 2 // 3])
    lose_machine(path)
    with caplog.at_level(logging.WARNING, "pequod.data"):
        assert 20 <= len(contents(path)) < 50
    about = read_about(path)
    assert 20 <= about.ends[1] < 50
    assert about.timeline > 1
    assert "a new timeline begins" in caplog.text


def test_a_lost_machine_that_lost_what_was_synced_is_damage(tmp_path: Path) -> None:
    path = small(tmp_path / "data", synced=45)
    data = log_of(path).read_bytes()
    log_of(path).write_bytes(data[: len(data) // 2])
    lose_machine(path)
    with pytest.raises(DamagedError, match="and 45 were written"):
        contents(path)
    assert read_about(path).timeline == 1


def test_a_first_start_may_end_anywhere(tmp_path: Path) -> None:
    Folder(tmp_path / "a").close()
    assert contents(tmp_path / "a") == {}
    with Folder(tmp_path / "b") as folder:
        folder.note.begin(0)
        folder.rows.mkdir()
    assert contents(tmp_path / "b") == {}


def test_rows_that_are_gone_are_not_an_empty_folder(tmp_path: Path) -> None:
    path = small(tmp_path / "data")
    shutil.rmtree(path / "rows")
    with pytest.raises(DamagedError, match="the rows are gone"):
        contents(path)
