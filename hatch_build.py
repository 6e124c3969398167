"""The native core of a wheel, and of an editable install (pequod/native/): it is built where a C++ compiler is.

A wheel has the library nghttp2 beside it, if the machine that builds it has.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Where it goes.
_NATIVE = Path("pequod", "native")


class NativeBuildHook(BuildHookInterface[Any]):
    """Adds the native core to a wheel, or puts it where an editable install has it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell which files to take in and where."""
        self._scratch = Path(tempfile.mkdtemp(prefix="pequod-native-"))
        if version == "editable":
            self._build_native(Path(self.root, _NATIVE))
            return
        (self._scratch / _NATIVE).mkdir(parents=True)
        self._build_native(self._scratch / _NATIVE, "--wheel")
        for made in sorted((self._scratch / _NATIVE).iterdir()):
            build_data["force_include"][str(made)] = str(made.relative_to(self._scratch))
            # Without the core there is a file that says why, and the wheel fits every machine.
            if made.suffix != ".txt":
                build_data["pure_python"] = False
                build_data["infer_tag"] = True

    def finalize(self, _version: str, _build_data: dict[str, Any], _artifact_path: str) -> None:
        """Remove the scratch folder."""
        shutil.rmtree(self._scratch)

    def _build_native(self, folder: Path, *flags: str) -> None:
        """Compile the native core into a folder; where that cannot be done, say so and go on without it."""
        command = [sys.executable, str(Path(self.root, "pequod", "native", "build.py")), *flags, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            self.app.display_warning(done.stderr.strip())
