"""Who runs without the native core is told why, and what to do."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

from pequod.native import absence
from pequod.native.build import REASON_FILE

ROOT = Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
BUILD = "pequod/native/build.py"
_VERSION = [sys.executable, "-P", "-c", "from pequod_installed.command import main; main()", "--version"]


def _copy(folder: Path) -> dict[str, str]:
    """Copy the sources, without a core; return the variables with which a process runs on them."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "node_modules", REASON_FILE)
    for name in ("pequod", "grammar", "proto", "server"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    paths = [folder, folder / "grammar", folder / "proto", folder / "server"]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PEQUOD_PURE": ""}


def _version(variables: dict[str, str]) -> str:
    return subprocess.run(_VERSION, env=variables, capture_output=True, text=True, check=True).stdout


def test_the_reason_is_what_the_build_met(tmp_path: Path) -> None:
    variables = _copy(tmp_path)
    build = [sys.executable, str(tmp_path / BUILD), str(tmp_path / "pequod/native")]
    assert "pure Python: the core has not been compiled; with a C++ compiler" in _version(variables)

    without = variables | {"PATH": str(tmp_path), "CXX": ""}
    done = subprocess.run(build, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "there is no C++ compiler" in done.stderr
    said = _version(variables)
    assert "compiled when Pequod was installed: there is no C++ compiler (g++ or clang++); with a C++ compiler" in said
    assert said.endswith(f"{sys.executable} {build[1]} {build[2]})\n")

    wrong = variables | {"CXXFLAGS": "-include no_such_header.h"}
    done = subprocess.run(build, env=wrong, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no_such_header.h" in done.stderr
    assert "the C++ compiler failed: " in _version(variables) and "no_such_header.h" in _version(variables)


def test_a_core_that_cannot_be_loaded_or_is_of_another_python_is_named(tmp_path: Path) -> None:
    variables = _copy(tmp_path)
    native = tmp_path / "pequod/native"
    other = native / "_hot.cpython-38-x86_64-linux-gnu.so"
    other.touch()
    assert f"no core for this Python ({sys.implementation.cache_tag}), but {other.name}; with" in _version(variables)
    (native / f"_hot{SUFFIX}").write_bytes(b"no library")
    assert "the core cannot be loaded: " in _version(variables)


def test_what_was_switched_off_can_be_switched_on() -> None:
    done = subprocess.run(_VERSION, env=os.environ | {"PEQUOD_PURE": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout == "pequod 0.1.0 (pure Python: PEQUOD_PURE is set; unset it)\n"


def test_a_server_says_in_one_line_why_it_is_pure_and_what_to_do() -> None:
    command = [sys.executable, "-m", "pequod.cli", "serve", "--listen", "127.0.0.1:0"]
    pure = os.environ | {"PEQUOD_PURE": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=pure) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("pequod (pure Python) serving on 127.0.0.1:")
        said = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert "without the native core" in said and "PEQUOD_PURE is set; unset it" in said


def test_a_pure_process_asks_for_the_reason_of_its_build() -> None:
    assert absence._REASON_FILE == REASON_FILE
