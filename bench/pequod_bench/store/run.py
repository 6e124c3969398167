"""The figures of a store in its own right, each beside what is wanted."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from pequod.client import Client
from pequod_bench.report.printed import Printed, print_rows
from pequod_bench.report.progress import ProgressBars
from pequod_bench.settings import StoreSettings, TwipRunSettings
from pequod_bench.store import beyond, durable
from pequod_bench.store.expiry import expire
from pequod_bench.store.filled import fill
from pequod_bench.systems.server import started_server
from pequod_bench.systems.site import NoEtcdError
from pequod_bench.twip import run as twip

_TWEET_BYTES: Final = 5
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class StoreFigure:
    """One figure."""

    measure: str
    wanted: str
    reached: str


@dataclass(frozen=True, slots=True)
class StoreReport(Printed):
    """All figures, and why some are not there."""

    figures: list[StoreFigure]
    skipped: str

    def unmeasured(self) -> str:
        return self.skipped

    def print_table(self, console: Console) -> None:
        columns = {"measure": "{0.measure}", "wanted": "{0.wanted}", "reached": "{0.reached}"}
        print_rows(console, self.figures, columns, left=3)


def run(settings: StoreSettings, bars: ProgressBars) -> StoreReport:
    """Measure the figures whose names hold the wanted words."""
    figures, skipped = list[StoreFigure](), list[str]()
    for name, measure in _MEASURES.items():
        if settings.only not in name:
            continue
        with TemporaryDirectory() as scratch, bars.working(name):
            try:
                figures += measure(settings, Path(scratch))
            except NoEtcdError as error:
                skipped.append(str(error))
    return StoreReport(figures, "; ".join(skipped))


def _twip(settings: StoreSettings, scratch: Path) -> Iterator[StoreFigure]:
    sizes = TwipRunSettings(users=settings.users, ticks=settings.ticks, tweet_bytes=_TWEET_BYTES, verify="final")
    rates: dict[str, list[float]] = {}
    for number in range(settings.repeat):
        for fsync in ("none", "everysec", "always"):
            folder = scratch / f"{fsync}{number}"
            flags = [] if fsync == "none" else ["--data", str(folder), "--fsync", fsync]
            rates.setdefault(fsync, []).append(
                twip.run(sizes, ProgressBars(Console(quiet=True)), flags=flags).ticks_per_s
            )
    for fsync, wanted in (("everysec", 0.85), ("always", 0.5)):
        ratios = [rate / none for rate, none in zip(rates[fsync], rates["none"], strict=True)]
        reached = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        yield StoreFigure(f"Twip with {fsync} by none", f"at least {wanted}", reached)


def _puts(settings: StoreSettings, scratch: Path) -> Iterator[StoreFigure]:
    pairs = [
        tuple(
            measure(scratch / f"{name}{number}", settings.connections, settings.seconds)
            for name, measure in (("pequod", durable.pequod_puts), ("etcd", durable.etcd_puts))
        )
        for number in range(settings.repeat)
    ]
    rates = [ours.puts_per_s / its.puts_per_s for ours, its in pairs]
    cpu = statistics.median([ours.server_cpu_us / its.server_cpu_us for ours, its in pairs])
    reached = f"{statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f}); server CPU {cpu:.2f}"
    yield StoreFigure(f"durable puts of {settings.connections} connections by etcd's", "at least 3", reached)


def _start(settings: StoreSettings, scratch: Path) -> Iterator[StoreFigure]:
    fill(scratch / "data", settings.rows)
    begun_s = time.monotonic()
    with started_server("--data", str(scratch / "data")) as (target, _), Client(target) as client:
        client.get(b"loose")
        answered_s = time.monotonic() - begun_s
        while sum(table.keys for table in client.statistics().tables.values()) < settings.rows:
            time.sleep(_LOOK_S)
        whole_s = time.monotonic() - begun_s
    rows = f"{settings.rows:,} rows"
    yield StoreFigure(f"start from {rows}: the first answer", "at once", f"{answered_s:.1f} s")
    yield StoreFigure(f"start from {rows}: all in memory", "5 million within 15 s", f"{whole_s:.1f} s")


def _beyond(settings: StoreSettings, scratch: Path) -> Iterator[StoreFigure]:
    row_count = beyond.rows_for(settings.limit_mib, settings.times)
    fill(scratch / "data", row_count)
    seen = beyond.pressed(scratch / "data", row_count, settings.seconds, settings.limit_mib)
    share = seen.resident_bytes / (settings.limit_mib << 20)
    reached = f"{share:.0%}; {seen.reads:,} rows read, all exact"
    yield StoreFigure(
        f"memory at {settings.times:g} times its limit of {settings.limit_mib} MiB", "at most 110 %", reached
    )


def _expiry(settings: StoreSettings, _: Path) -> Iterator[StoreFigure]:
    seen = expire(settings.expiring)
    keys = f"{settings.expiring:,} keys expire"
    yield StoreFigure(f"{keys}: the longest turn", "at most 20 ms", f"{seen.turn_ms:.1f} ms of CPU")
    yield StoreFigure(f"{keys}: all gone", "a million within 5 s", f"{seen.gone_s:.1f} s of CPU")


_MEASURES: Final[dict[str, Callable[[StoreSettings, Path], Iterator[StoreFigure]]]] = {
    "twip": _twip,
    "puts": _puts,
    "start": _start,
    "beyond memory": _beyond,
    "expire": _expiry,
}
