"""The native core; without it, as under PEQUOD_PURE, its tests are skipped, but not where CI is set."""

import os

import pytest

try:
    from pequod.native import _hot as hot
except ImportError as error:
    if os.environ.get("CI") and not os.environ.get("PEQUOD_PURE"):
        raise
    pytest.skip(f"the native core is not there: {error}", allow_module_level=True)

__all__ = ["hot"]
