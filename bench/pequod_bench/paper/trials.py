"""Runs of whatever is compared: interleaved, and one that fails does not end the others.

round 1   A B C D       what slows the machine for a while slows all of them
round 2   A B   D       C failed: it is left out from then on, and the report says why
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from pequod_bench.report.progress import Advance, ProgressBars

Found = TypeVar("Found")
Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Failure:
    """Something that was to be measured, and why it was not."""

    section: str
    title: str
    reason: str


class Trials:
    """Makes runs, and notes which failed."""

    def __init__(self, loop: asyncio.Runner, bars: ProgressBars, *, pin: bool) -> None:
        self.loop = loop
        self.bars = bars
        self.pin = pin
        self.failures: list[Failure] = []

    def attempt(self, section: str, title: str, work: Callable[[], Found]) -> list[Found]:
        """Return what was found, in a list; nothing if it failed."""
        try:
            return [work()]
        except Exception as error:
            text = str(error).strip() or "it says no more"
            self.failures.append(Failure(section, title, f"{type(error).__name__}: {text}"))
            return []

    def interleaved(
        self,
        section: str,
        subjects: Mapping[str, Subject],
        repetitions: int,
        run_one: Callable[[Subject], Found],
        advance: Advance,
    ) -> dict[str, list[Found]]:
        """Run all subjects one after the other, then all again; return the results of those that did not fail."""
        found: dict[str, list[Found]] = {title: [] for title in subjects}
        for _ in range(repetitions):
            for title in list(found):
                result = self.attempt(section, title, partial(run_one, subjects[title]))
                found[title] += result
                if not result:
                    del found[title]
                advance(1)
        return found
