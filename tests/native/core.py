"""The native core; without it, as under PEQUOD_PURE, its tests are skipped."""

import pytest

try:
    from pequod.engine import _hot as hot
except ImportError as error:
    pytest.skip(f"the native core is not there: {error}", allow_module_level=True)

__all__ = ["hot"]
