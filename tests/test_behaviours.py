"""From a behaviour to its tests: the page is that of the present files, and words find the tests that have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.behaviours import PAGE, main, modules, page, search

_WORDS_MIN = 3


def test_the_page_about_tests_is_that_of_the_files() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make behaviours`"


def test_each_file_says_what_it_is_about_and_each_test_is_a_sentence() -> None:
    found = modules()
    assert [module.path for module in found if not module.about] == []
    names = [(one.path, one.sentence) for module in found for one in module.behaviours]
    assert [(path, name) for path, name in names if len(name.split()) < _WORDS_MIN] == []


def test_words_find_a_test_by_its_sentence_and_by_the_line_of_its_file() -> None:
    found = {one.sentence for _, behaviours in search(["Slot", "half-open"]) for one in behaviours}
    assert "postgresql frees a slot soon after a power cut" in found
    assert "words find a test by its sentence and by the line of its file" not in found


def test_what_was_found_is_printed_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["found", "printed", "with", "its", "place"]) == 0
    shown = capsys.readouterr().out
    assert Path(__file__).name in shown
    assert "what was found is printed with its place" in shown


def test_words_that_no_test_has_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zebra" + "fish"]) == 1
    assert "no test has all of the words zebrafish" in capsys.readouterr().err
