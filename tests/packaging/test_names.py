"""Pequod is installed as `pequod-cache`: the distribution `pequod` of PyPI is another project's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version as version_of
from pathlib import Path

import pytest
from pequod_installed import names

ROOT = Path(__file__).parents[2]
FOLDERS = ("bench", "docs", "grammar", "pequod", "proto", "server", "spark_backfill", "tests")
KINDS = {".cfg", ".md", ".proto", ".py", ".service", ".toml", ".yaml", ""}
#: The stranger's name where pip takes one, and as the name of what has extras.
STRANGERS = re.compile(r"""pip3? install(?:\s+-\S+)*\s+['"]?pequod(?![\w-])|['"`]pequod\[""")
SHOWN = Path(__file__).relative_to(ROOT)


def _texts() -> dict[Path, str]:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in KINDS]
    files += [path for path in ROOT.iterdir() if path.suffix in KINDS or path.name == "Makefile"]
    return {
        path.relative_to(ROOT): path.read_text("utf-8")
        for path in files
        if path.is_file() and not {"build", "node_modules", "__pycache__", ".git"} & set(path.parts)
    }


@pytest.mark.parametrize(
    "text",
    ["pip install 'pequod[server]'", "pip install pequod", "`pip install\n-U pequod`", 'the extra "pequod[lake]"'],
)
def test_what_installs_the_stranger_is_found(text: str) -> None:
    assert STRANGERS.search(text)


def test_no_page_and_no_text_tells_to_install_the_stranger() -> None:
    texts = _texts()
    assert len(texts) > 500 and Path("docs/deploy/pequod.service") in texts
    found = {str(path): STRANGERS.findall(text) for path, text in texts.items() if path != SHOWN}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_one_place_in_the_code_says_how_to_install_an_extra() -> None:
    code = {path: text for path, text in _texts().items() if path.suffix == ".py" and path.parts[0] != "tests"}
    assert {str(path) for path, text in code.items() if "pip install" in text} == {"server/pequod_installed/names.py"}


def test_the_distribution_has_the_name_that_the_hints_say() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == names.NAME
    assert names.version() == version_of("pequod-cache") == project["version"]


def test_every_hint_names_an_extra_that_there_is() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = {
        extra
        for path, text in _texts().items()
        if path.suffix == ".py" and path.parts[0] != "tests"
        for arguments in re.findall(r"how_to_install\(('[^)]*)\)", text)
        for extra in re.findall(r"'(\w+)'", arguments)
    }
    needed = {
        "backing",
        "bench",
        "cassandra",
        "files",
        "jwt",
        "kafka",
        "lake",
        "mariadb",
        "otel",
        "redis",
        "server",
        "shell",
        "spark",
        "views",
    }
    assert asked == needed
    assert asked <= extras.keys()


def test_a_checkout_is_installed_from_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    assert names.how_to_install("server", "backing") == "pip install -e '.[server,backing]'"
    monkeypatch.chdir(tmp_path)
    assert names.how_to_install("server") == f"pip install -e '{ROOT}[server]'"


def test_what_is_no_checkout_is_installed_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(names, "_CHECKOUT", tmp_path)
    monkeypatch.setattr(names, "_installed_from", lambda: None)
    assert names.how_to_install("server") == "pip install 'pequod-cache[server]'"


@pytest.mark.parametrize("origin", ["a folder", "pequod_cache-0.1.0-cp311-cp311-linux_x86_64.whl"])
def test_what_was_installed_from_a_checkout_or_a_wheel_is_installed_from_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, origin: str
) -> None:
    """A name that nobody has published yet installs nothing, or what somebody else publishes under it."""
    source = tmp_path / origin
    source.touch()
    described = tmp_path / "site/pequod_cache-0.1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.4\nName: pequod-cache\nVersion: 0.1.0\n")
    (described / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "archive_info": {}}))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(names, "_CHECKOUT", tmp_path)
    assert names.how_to_install("server") == f"pip install '{source}[server]'"
    source.unlink()
    assert names.how_to_install("server") == "pip install 'pequod-cache[server]'"


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "from pequod_installed.command import main; main()", "--version"]
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False, cwd=ROOT
    )


def _install_stranger(folder: Path) -> None:
    described = folder / "pequod-0.2.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.4\nName: pequod\nVersion: 0.2.0\nSummary: A palette.\n")


def test_a_start_beside_the_stranger_says_so_and_goes_on(tmp_path: Path) -> None:
    _install_stranger(tmp_path)
    done = _run(tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("pequod 0.1.0 (")
    assert done.stderr.startswith("pequod: the distribution pequod 0.2.0 is installed here ('A palette.')")
    assert done.stderr.endswith("pip uninstall pequod && pip install --force-reinstall --no-deps -e '.'\n")


@pytest.mark.parametrize("package", ["__version__ = '0.1.0'\n", "raise ImportError('matplotlib')\n"])
def test_a_start_that_finds_the_stranger_in_its_place_says_so_and_ends(tmp_path: Path, package: str) -> None:
    _install_stranger(tmp_path)
    (tmp_path / "pequod").mkdir()
    (tmp_path / "pequod/__init__.py").write_text(package)
    done = _run(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert (
        done.stderr.startswith("pequod: the distribution pequod 0.2.0 is installed here")
        and "\n" not in done.stderr[:-1]
    )


def test_a_start_without_the_stranger_says_nothing(tmp_path: Path) -> None:
    assert _run(tmp_path).stderr == ""
