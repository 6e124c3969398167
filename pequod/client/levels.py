"""Levels of freshness as messages."""

from __future__ import annotations

from typing import Final, assert_never

from pequod_proto import pequod_pb2 as pb

from pequod.freshness import After, AnyState, Freshness, Latest, MaxAge

_UINT32_MAX: Final = (1 << 32) - 1


def level(freshness: Freshness) -> pb.Freshness:
    """Return how fresh an answer has to be, as a message."""
    match freshness:
        case AnyState():
            return pb.Freshness()
        case After():
            message = pb.Freshness(after=bytes(freshness.token))
        case Latest():
            message = pb.Freshness(latest=True)
        case MaxAge():
            # Rounded down: never older than asked for.
            message = pb.Freshness(max_age_ms=_milliseconds(freshness.age_s))
        case _:
            assert_never(freshness)
    message.wait_ms = _milliseconds(freshness.wait_s)
    return message


def level_or_none(freshness: Freshness | None) -> pb.Freshness | None:
    """Return how fresh an answer has to be, None if the call does not say it."""
    return None if freshness is None else level(freshness)


def _milliseconds(duration_s: float) -> int:
    return int(min(max(duration_s, 0) * 1000, _UINT32_MAX))
