"""What each task does first, in the Python processes that Spark uses for one task after another."""

from __future__ import annotations

import gc


def freeze_imports() -> None:
    """Freeze the objects of this process's imports: Spark runs a full garbage collection after each task.

    Cost:
        Saves 10 to 50 ms a task. Objects that are alive at the first call stay for good.
    """
    if not gc.get_freeze_count():
        gc.freeze()
