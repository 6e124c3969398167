"""What is made before a store is touched, graph, operations and commands, and what answers have to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pequod_workloads.twip import JOINS, PUSH_JOIN

from pequod.errors import SettingError
from pequod_bench.settings import TwipSettings
from pequod_bench.workloads import stream as operations
from pequod_bench.workloads import verify as answers
from pequod_bench.workloads.stream import CommandBatch, TwipStream, timeline_scans
from pequod_bench.workloads.verify import Reply, Verdict

#: Puts a message while the graph is loaded.
LOAD_BATCH: Final = 512
#: Whole timelines a message when the final ones are read: far fewer, since these are long.
SCAN_BATCH: Final = 16


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is made before a store is touched."""

    settings: TwipSettings
    stream: TwipStream
    batches: list[CommandBatch]
    #: The declarations to install.
    joins: str = PUSH_JOIN

    @property
    def load_count(self) -> int:
        return self.stream.graph.edge_count + self.stream.first_tick

    @property
    def command_count(self) -> int:
        """How many commands are timed; logouts are none."""
        return sum(len(batch.kinds) for batch in self.batches)

    def loads(self) -> Iterable[CommandBatch]:
        """Return the puts of what is there before the start."""
        return operations.load_batches(self.stream, self.settings.tweet_bytes, LOAD_BATCH)


def prepare(settings: TwipSettings) -> Prepared:
    """Draw the graph and the operations and render every command."""
    joins = JOINS[settings.mode] if settings.join_file is None else _text(settings.join_file)
    stream = operations.make_stream(
        settings.graph, settings.users, settings.ticks, settings.seed, settings.initial_posts
    )
    return Prepared(settings, stream, operations.timed_batches(stream, settings.tweet_bytes, settings.batch), joins)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError("--join-file", f"cannot read the joins: {error}") from error


def verify(prepared: Prepared, replies: Sequence[Reply], timelines: Sequence[Reply]) -> tuple[Verdict, int]:
    """Compare what came back with what must have come; also return how many checks were compared."""
    stream = prepared.stream
    posts = answers.StreamPosts(stream, prepared.settings.tweet_bytes)
    checks_verified = 0
    if prepared.settings.verify == "all":
        checks = answers.verify_checks(stream, posts, prepared.batches, replies)
        if isinstance(checks, answers.Differs):
            return checks, 0
        checks_verified = checks.scan_count
    return answers.verify_timelines(stream, posts, timeline_scans(stream, SCAN_BATCH), timelines), checks_verified
