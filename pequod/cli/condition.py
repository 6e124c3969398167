"""Conditions of writes: --if-absent, --if-present and --if-value, and what is printed of one that does not hold."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pequod.cli.exits import ExitCode, fail
from pequod.cli.text import argument_bytes, escaped, json_bytes, json_line

if TYPE_CHECKING:
    from pequod.language.conditions import Condition, Met, Unmet

IfAbsent = Annotated[bool, typer.Option("--if-absent", help="Only if the key is not there.")]
IfPresent = Annotated[bool, typer.Option("--if-present", help="Only if the key is there.")]
IfValue = Annotated[str | None, typer.Option("--if-value", metavar="VALUE", help="Only if the key has this value.")]


def asked_condition(if_absent: bool, if_present: bool, if_value: str | None) -> Condition | None:
    """Return the condition that options ask for, None if they ask for none."""
    from pequod.language.conditions import IF_ABSENT, IF_PRESENT
    from pequod.language.conditions import if_value as of_value

    if if_absent + if_present + (if_value is not None) > 1:
        fail(ExitCode.USAGE, "give one of --if-absent, --if-present and --if-value")
    if if_absent:
        return IF_ABSENT
    if if_present:
        return IF_PRESENT
    return None if if_value is None else of_value(argument_bytes(if_value))


def told(key: bytes, outcome: Met | Unmet, fields: dict[str, Any] | None) -> None:
    """Print what came of a condition, and fail if it did not hold.

    Args:
        fields: Those of the line of JSON, to which this adds; None: no JSON.
    """
    from pequod.language.conditions import Unmet

    present = outcome.value if isinstance(outcome, Unmet) else None
    if fields is not None:
        shown = None if present is None else json_bytes(present)
        print(json_line(fields | {"met": bool(outcome)} | ({} if outcome else {"value": shown})))
    elif present is not None:
        sys.stdout.buffer.write(present + b"\n")
    if not outcome:
        reason = "is not there" if present is None else "is there, with the value that is printed"
        fail(ExitCode.ABSENT, f"the condition does not hold: key {escaped(key)} {reason}")
