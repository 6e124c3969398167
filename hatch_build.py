"""The compiled wheel: the engine and the server's loop as C extensions, from the same Python sources.

Runs only where HATCH_BUILD_HOOK_ENABLE_CUSTOM is set, as `make build-compiled` does. The Python files stay in the
wheel; Python prefers an extension beside them.
"""

from __future__ import annotations

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
_SERVER = ("pequod_server/batch.py", "pequod_server/columns.py", "pequod_server/execute.py")

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


class CompiledBuildHook(BuildHookInterface[Any]):
    """Adds the extensions to a wheel."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs beside a C compiler."""
        return ["mypy>=1.13", "setuptools>=70"]

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell which files to take in and where."""
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        self._scratch = Path(tempfile.mkdtemp(prefix="pequod-compiled-"))
        for extension in _compile(Path(self.root), self._scratch):
            build_data["force_include"][str(extension)] = str(extension.relative_to(self._scratch))

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove the scratch folder."""
        shutil.rmtree(self._scratch)


def _compile(root: Path, scratch: Path) -> list[Path]:
    """Compile a copy of the packages in ``scratch``; return the extensions there."""
    for package in _PACKAGES:
        shutil.copytree(root / package, scratch / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    folders = [scratch / "pequod" / "engine", scratch / "pequod" / "language"]
    engine = sorted(path for folder in folders for path in folder.rglob("*.py") if path.name not in _LEFT_OUT)
    modules = [str(path.relative_to(scratch)) for path in engine] + list(_SERVER)
    (scratch / "mypy.ini").write_text(_MYPY)
    (scratch / "setup.py").write_text(_SETUP.format(arguments=[*modules, "--config-file=mypy.ini"]))
    subprocess.run([sys.executable, "setup.py", "build_ext", "--inplace"], cwd=scratch, check=True)
    return sorted(path for path in scratch.rglob("*.so") if "build" not in path.relative_to(scratch).parts)
