"""The lists of planted faults are those of the present engine and native core, and of the page about them."""

from pathlib import Path

from tests.engine.faults import FAULTS as FAULTS_OF_THE_ENGINE
from tests.native.faults import FAULTS

ROOT = Path(__file__).parents[1]
NATIVE = ROOT / "pequod/native"
PAGE = ROOT / "docs/architecture/planted.md"


def test_each_fault_has_one_place_and_changes_it() -> None:
    for fault in FAULTS:
        assert (NATIVE / fault.file).read_text().count(fault.right) == 1, fault
        assert fault.wrong != fault.right
    assert len({(fault.file, fault.breaks) for fault in FAULTS}) == len(FAULTS)


def test_each_fault_of_the_engine_has_one_place_and_changes_it() -> None:
    for fault in FAULTS_OF_THE_ENGINE:
        assert (ROOT / "pequod/engine" / fault.file).read_text().count(fault.right) == 1, fault
        assert fault.wrong != fault.right


def test_each_file_of_the_native_core_has_a_fault() -> None:
    files = {path.relative_to(NATIVE).as_posix() for path in NATIVE.rglob("*.cpp")}
    assert files <= {fault.file for fault in FAULTS}


def test_the_page_has_the_list() -> None:
    rows = [f"| {fault.file} | {fault.breaks} |" for fault in FAULTS]
    assert [line for line in PAGE.read_text().splitlines() if ".cpp |" in line or ".hpp |" in line] == rows
