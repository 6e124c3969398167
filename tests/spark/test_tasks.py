"""Tasks keep what they imported out of the collections that Spark makes after each."""

from __future__ import annotations

import gc

from pequod_spark.tasks import freeze_imports


def test_imports_are_frozen_once() -> None:
    # Other tests run tasks in this process, too.
    gc.unfreeze()
    assert gc.get_freeze_count() == 0
    try:
        freeze_imports()
        assert gc.get_freeze_count() > 10_000
        made: list[object] = [object()]
        freeze_imports()
        # The collector still has what was made since: only frozen objects are not among its own.
        assert any(kept is made for kept in gc.get_objects())
    finally:
        gc.unfreeze()
