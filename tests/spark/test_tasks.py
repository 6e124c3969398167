"""Tasks keep what they imported out of the collections that Spark makes after each."""

from __future__ import annotations

import gc

from pequod_spark.tasks import freeze_imports


def test_imports_are_frozen_once() -> None:
    assert gc.get_freeze_count() == 0
    try:
        freeze_imports()
        frozen = gc.get_freeze_count()
        assert frozen > 10_000
        made = [[] for _ in range(100)]  # type: ignore[var-annotated]
        freeze_imports()
        assert gc.get_freeze_count() == frozen
        assert gc.is_tracked(made)
    finally:
        gc.unfreeze()
