"""The ranges that readers of computed keys ask for: one for each value of a first slot, such as a timeline."""

from __future__ import annotations

from pequod.engine import JoinSpec, Slot, prefix_end
from pequod.engine.testing import NaiveModel
from pequod.language.spec import DELIMITER


def stems_of(model: NaiveModel) -> list[tuple[bytes, bytes | None]]:
    """Return the ranges of keys that joins compute now, one for each value of a first slot: so timelines are read."""
    keys = model.evaluate()
    stems = {stem for spec in model.joins for key in keys if (stem := _stem_of(spec, key))}
    return [(stem, prefix_end(stem)) for stem in sorted(stems)]


def _stem_of(spec: JoinSpec, key: bytes) -> bytes | None:
    """Return a computed key up to the literal behind its first slot; None if it is not of a join's output."""
    match spec.output.parts:
        case (bytes(start), Slot(width=None), bytes(_), *_) if key.startswith(start):
            return key[: key.find(DELIMITER, len(start)) + 1] or None
        case (bytes(start), Slot(width=int(width)), *_) if key.startswith(start) and len(key) > len(start) + width:
            return key[: len(start) + width]
        case _:
            return None
