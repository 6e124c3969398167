"""What tests run beside Pequod and does not come with it: PostgreSQL, Redis, memcached, Java."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(reason: str) -> NoReturn:
    """Skip a test whose server is not installed; where CI is set, fail it: there everything has to run.

    Args:
        reason: What is not there, and how to install it.
    """
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
