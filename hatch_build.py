"""The extensions of a wheel, and of an editable install: the native core, and on request the Python code compiled.

The native core (pequod/native/) goes into every wheel that is built where a C++ compiler is. Where PEQUOD_MYPYC is
set, as `make build-compiled` does, a wheel has the engine and the server's loop as C extensions instead, from the same
Python sources. The Python files stay in the wheel; Python prefers an extension beside them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: What stays Python: the facade has nothing to gain, and the others do not run while requests are served.
_LEFT_OUT = {"__init__.py", "testing.py", "explain.py", "statistics.py"}
#: Compiled together, so that calls between them are C calls. Paths as packages see them: the folders that hold
#: packages are flattened first, since the names of modules come from paths.
_PACKAGES = ("pequod", "grammar/pequod_grammar", "proto/pequod_proto", "server/pequod_server")
_SERVER = ("pequod_server/batches/batch.py", "pequod_server/batches/columns.py", "pequod_server/batches/executor.py")

#: Where the native core goes.
_ENGINE = Path("pequod", "engine")

_SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

setup(name="pequod-compiled", packages=[], ext_modules=mypycify({arguments!r}, opt_level="3", group_name="pequod"))
"""
_MYPY = """\
[mypy]
strict = true
follow_imports = silent
ignore_missing_imports = true

[mypy-pequod_proto.*]
ignore_errors = true
"""


class ExtensionBuildHook(BuildHookInterface[Any]):
    """Adds the extensions to a wheel, or puts the native core beside the engine that an editable install runs."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs beside a compiler."""
        return ["mypy>=1.13", "setuptools>=70"] if _is_compiled() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell which files to take in and where."""
        self._scratch = Path(tempfile.mkdtemp(prefix="pequod-extensions-"))
        root = Path(self.root)
        if version == "editable":
            self._build_native(root / _ENGINE)
            return
        if _is_compiled():
            extensions = _compile(root, self._scratch)
        else:
            (self._scratch / _ENGINE).mkdir(parents=True)
            self._build_native(self._scratch / _ENGINE)
            extensions = sorted((self._scratch / _ENGINE).iterdir())
        if not extensions:
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for extension in extensions:
            build_data["force_include"][str(extension)] = str(extension.relative_to(self._scratch))

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove the scratch folder."""
        shutil.rmtree(self._scratch)

    def _build_native(self, folder: Path) -> None:
        """Compile the native core into a folder; where that cannot be done, say so and go on without it."""
        script = Path(self.root, "pequod", "native", "build.py")
        done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(done.stderr.strip())


def _is_compiled() -> bool:
    return bool(os.environ.get("PEQUOD_MYPYC"))


def _compile(root: Path, scratch: Path) -> list[Path]:
    """Compile a copy of the packages in ``scratch``; return the extensions there."""
    for package in _PACKAGES:
        shutil.copytree(
            root / package, scratch / Path(package).name, ignore=shutil.ignore_patterns("__pycache__", "_hot.*")
        )
    folders = [scratch / "pequod" / "engine", scratch / "pequod" / "language"]
    engine = sorted(path for folder in folders for path in folder.rglob("*.py") if path.name not in _LEFT_OUT)
    modules = [str(path.relative_to(scratch)) for path in engine] + list(_SERVER)
    (scratch / "mypy.ini").write_text(_MYPY)
    (scratch / "setup.py").write_text(_SETUP.format(arguments=[*modules, "--config-file=mypy.ini"]))
    subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=scratch, check=True)
    return sorted(path for path in scratch.rglob("*.so") if "build" not in path.relative_to(scratch).parts)
