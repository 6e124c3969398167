"""A folder of data: who has it, what it says of itself, and how far it had come."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pequod_server.data.errors import DamagedError, FolderError
from pequod_server.data.folder import About, Folder, read_about, write_about
from pequod_server.data.library import Logs
from pequod_server.data.note import PositionNote

from pequod.freshness import database_of


def test_a_folder_is_for_one_server_at_a_time_and_says_who_has_it(tmp_path: Path) -> None:
    with Folder(tmp_path), pytest.raises(FolderError, match=f"the process {os.getpid()} has it open"):
        Folder(tmp_path)
    Folder(tmp_path).close()


def test_its_name_is_made_once_and_names_its_states(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        history = folder.about.history
    with Folder(tmp_path, make=False) as folder:
        assert folder.about.history == history
        assert history.database == database_of("data", folder.about.name)
    with Folder(tmp_path / "other") as other:
        assert other.about.history.database != history.database


def test_a_timeline_ends_where_changes_were_lost_and_the_next_has_a_greater_number(tmp_path: Path) -> None:
    with Folder(tmp_path) as folder:
        folder.lose_tail(40)
        second = folder.about.timeline
        folder.lose_tail(70)
    found = read_about(tmp_path)
    assert found.ends == {1: 40, second: 70}
    assert 1 < second < found.timeline


def test_a_folder_that_holds_nothing_is_not_made_by_those_who_look(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="there are no data in it"):
        Folder(tmp_path / "nothing", make=False)
    assert not (tmp_path / "nothing").exists()


def test_a_place_that_cannot_be_a_folder_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file/below"):
        with pytest.raises(
            FolderError, match="it is a file, or below one, and data are in a folder; name another place"
        ):
            Folder(place)


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    write_about(tmp_path, About("a"))
    file = tmp_path / "folder.json"
    content = json.loads(file.read_text())
    del content["checksum"]
    from pequod_server.data import folder

    content["format"] = 7
    file.write_text(json.dumps({**content, "checksum": folder._checksum(content)}))
    with pytest.raises(FolderError, match="of format 7, and this version of Pequod reads format 1"):
        Folder(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"name": "a"}'])
def test_a_damaged_file_about_the_folder_is_told_with_what_to_do(tmp_path: Path, damage: bytes) -> None:
    Folder(tmp_path).close()
    (tmp_path / "folder.json").write_bytes(damage)
    with pytest.raises(DamagedError, match=r"folder\.json: the file is damaged .*pequod data repair"):
        Folder(tmp_path)
    Path(tmp_path / "folder.json").unlink()
    (tmp_path / "rows").mkdir()
    with pytest.raises(DamagedError, match="the file is gone"):
        Folder(tmp_path)


def test_the_note_outlives_its_process_and_the_lesser_of_two_numbers_counts(tmp_path: Path) -> None:
    file = tmp_path / "note"
    with PositionNote(file) as note:
        assert not note.is_whole
        note.begin(5, Logs(8, 12))
        note.written, note.synced = 9, 7
    with PositionNote(file) as note:
        assert (note.is_whole, note.is_same_boot, note.had_ended) == (True, True, False)
        assert (note.written, note.synced, note.least, note.logs) == (9, 7, 9, Logs(8, 12))
        # A bit flips, or the process ends between two stores.
        note._map[48 + 6] ^= 1
        note._map[96 + 6] ^= 1
    with PositionNote(file) as note:
        assert note.written == 9
        assert note.logs is None, "either number may be wrong"
        note._map[8:44] = b"another run of the machine".ljust(36)
    with PositionNote(file) as note:
        assert (note.is_same_boot, note.least) == (False, 7)
        note.end()
    with PositionNote(file) as note:
        assert (note.had_ended, note.least) == (True, 9)
    file.write_bytes(file.read_bytes()[:50])
    with PositionNote(file) as note:
        assert not note.is_whole
