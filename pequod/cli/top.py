"""top: a live view of what a server holds and does."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import DEFAULT_TARGET, Json, Target, connected
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.inspect import backing_line
from pequod.cli.tables import print_table
from pequod.cli.teaching import examples
from pequod.cli.text import counted, escaped, json_line
from pequod.cli.top_heat import ReadPlaces

if TYPE_CHECKING:
    from rich.table import Table

    from pequod.answers.statistics import JoinStatistics, Statistics
    from pequod.calls import BackingStatistics
    from pequod.cli.top_heat import HotGroup
    from pequod.client import Client

app: Final = typer.Typer()

_COLUMNS: Final = (
    "kind",
    "name",
    "keys",
    "bytes",
    "hits/s",
    "computed/s",
    "applied/s",
    "log entries",
    "age s",
    "contexts",
)
#: Lines of the live view beside its rows: title, head, two rules, the line about hidden rows, the empty last line.
_FRAME_LINES: Final = 6

_HELP: Final = """Show, again and again, what a server holds and does, by table and by join; q or Ctrl-C ends it.

\b
keys, bytes         what clients wrote into a table; what is materialised of a join, whose values are not in the bytes
hits/s              reads a second that found everything there and fresh
computed/s          rows a second that were computed because a read needed them
applied/s           noted changes a second that were applied, because a read needed them
log entries         changes that are noted and wait for a read
age s               how long the oldest of what is materialised has waited for a read to renew it
contexts            parts of a join's output that reads have materialised, such as single timelines

Above are the groups of keys that the server's processor time goes to, and the servers that each is read at.

Below a join are the hottest of its contexts: those that most reads found fresh since the look before.

A server that goes away is waited for. With --json a line of JSON is printed for each interval, without a terminal too.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The statistics at one moment."""

    at_s: float
    server_id: int
    statistics: Statistics
    #: The state of the databases behind the server.
    databases: tuple[BackingStatistics, ...] = ()
    #: The groups of keys that its processor time goes to.
    hot: tuple[HotGroup, ...] = ()

    @property
    def notes(self) -> list[str]:
        """What stands above the rows, in lines."""
        return [*map(backing_line, self.databases), *(one.line for one in self.hot)]


@dataclass(frozen=True, slots=True)
class ViewLine:
    """A table or a join in the view."""

    kind: str
    name: str
    #: The columns after the name; None where there is no figure.
    figures: tuple[float | None, ...]


@app.command(
    "top",
    help=_HELP,
    epilog=examples("pequod top", "pequod top --interval 0.5", "pequod top --once", "pequod top --json"),
)
def top(
    interval_s: Annotated[float, typer.Option("--interval", "-i", min=0.01, help="Seconds between two looks.")] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print what one interval brings as a plain table, and end.")
    ] = False,
    target: Target = DEFAULT_TARGET,
    json: Json = False,
) -> None:
    """Show what a server holds and does."""
    if not (once or json or sys.stdout.isatty()):
        fail(ExitCode.USAGE, "top needs a terminal to draw on; print one plain table with --once, or go on with --json")
    with connected(target) as client:
        if once:
            places = ReadPlaces(client.target)
            before = _sample(client, places)
            time.sleep(interval_s)
            now = _sample(client, places)
            print(_json(target, before, now)) if json else _print(client.target, before, now)
            return
        with suppress(KeyboardInterrupt):
            _print_json(client, interval_s) if json else _show(client, interval_s)


def _sample(client: Client, places: ReadPlaces) -> Sample:
    statistics = client.statistics()
    at_s, hot = time.monotonic(), places.hot_groups(statistics.heat)
    return Sample(at_s, client.server_id, statistics, statistics.databases, hot)


def view(before: Sample | None, now: Sample) -> list[ViewLine]:
    """Return the rows of the view: joins, then tables, the largest first.

    There are no rates without an earlier sample of the same server.
    """
    lines = []
    known = before.statistics.joins if before is not None and before.server_id == now.server_id else {}
    elapsed_s = now.at_s - before.at_s if before is not None else 0.0
    for join_name, join in now.statistics.joins.items():
        rates = _rates(known.get(join_name), join, elapsed_s)
        lines.append(
            ViewLine(
                "join", join_name, (join.rows, join.key_bytes, *rates, join.log_entries, join.age_s, join.contexts)
            )
        )
        lines += _hottest(known.get(join_name), join, elapsed_s)
    tables = [(table.key_bytes + table.value_bytes, name, table) for name, table in now.statistics.tables.items()]
    for byte_count, name, table in sorted(tables, key=lambda found: (-found[0], found[1])):
        lines.append(ViewLine("table", escaped(name), (table.keys, byte_count, None, None, None, None, None, None)))
    return lines


def _rates(before: JoinStatistics | None, now: JoinStatistics, elapsed_s: float) -> tuple[float | None, ...]:
    if before is None or before.hits > now.hits or elapsed_s <= 0:
        # The counts of a join that was dropped and installed again begin at 0.
        return (None, None, None)
    return tuple(
        (later - earlier) / elapsed_s
        for earlier, later in (
            (before.hits, now.hits),
            (before.rows_computed, now.rows_computed),
            (before.log_applied, now.log_applied),
        )
    )


def _hottest(before: JoinStatistics | None, now: JoinStatistics, elapsed_s: float) -> Iterator[ViewLine]:
    """Yield the lines of the contexts that were hit since the look before."""
    if before is None or elapsed_s <= 0:
        return
    earlier = {one.prefix: one.hits for one in before.hottest}
    for one in now.hottest:
        # One that was dropped and computed again counts from 0.
        hits = one.hits - earlier.get(one.prefix, one.hits)
        if hits > 0:
            yield ViewLine(
                "context", escaped(one.prefix), (one.rows, None, hits / elapsed_s, None, None, None, None, None)
            )


def _title(client_target: str, now: Sample) -> str:
    """Return whose figures these are: of a cluster it is one server that answers, and another one may answer next."""
    loose = counted(now.statistics.loose_keys, "key")
    whose = client_target
    if "://" in client_target and "server=" not in client_target:
        whose = f"one server of {client_target} (?server=ID names one), {now.server_id:016x}"
    return f"{whose}: revision {now.statistics.revision}, {loose} without a table"


def _print(client_target: str, before: Sample, now: Sample) -> None:
    print(_title(client_target, now))
    rows = [(line.kind, line.name, *(_figure(figure, "") for figure in line.figures)) for line in view(before, now)]
    for line in now.notes:
        print(line)
    print_table(_COLUMNS, rows)


def _json(target: str, before: Sample | None, now: Sample) -> str:
    lines = [dict(zip(_COLUMNS, (line.kind, line.name, *line.figures), strict=True)) for line in view(before, now)]
    whose = {"target": target, "server_id": f"{now.server_id:016x}"}
    shown = {**whose, "revision": now.statistics.revision, "databases": [asdict(one) for one in now.databases]}
    return json_line({**shown, "hot": [asdict(one) for one in now.hot], "lines": lines})


def _print_json(client: Client, interval_s: float) -> None:
    """Print a line for each interval; if the server does not answer, print that on standard error."""
    places = ReadPlaces(client.target)
    before, is_away = _sample(client, places), False
    while True:
        time.sleep(interval_s)
        now = _sample_if_there(client, places)
        if isinstance(now, Sample):
            print(_json(client.target, before, now), flush=True)
            before = now
        elif not is_away:
            say(f"{now}; waiting for it")
        is_away = not isinstance(now, Sample)


def _sample_if_there(client: Client, places: ReadPlaces) -> Sample | str:
    """Return a sample, or the error if the server does not answer now: it may come back."""
    from pequod.errors import DeadlineExceededError, UnavailableError

    try:
        return _sample(client, places)
    except UnavailableError:
        return f"no server at {client.target}"
    except DeadlineExceededError as error:
        return f"{client.target} did not answer within {error.timeout_s:g} s"


def _figure(figure: float | None, separator: str) -> str:
    if figure is None:
        return "-"
    return format(figure, f"{separator}d" if isinstance(figure, int) else f"{separator}.1f")


def _show(client: Client, interval_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    places = ReadPlaces(client.target)
    before, now = None, _sample(client, places)
    away, seen_s = "", time.monotonic()
    with _keyboard() as is_ended_within, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            lines_max = max(1, console.height - _FRAME_LINES)
            live.update(_drawn(client.target, before, now, lines_max, away), refresh=True)
            if is_ended_within(interval_s):
                return
            found = _sample_if_there(client, places)
            if isinstance(found, Sample):
                # Changes during a time without samples give no rate.
                before, now = None if away else now, found
                away, seen_s = "", time.monotonic()
            else:
                away = f"{found}; waiting for it since {time.monotonic() - seen_s:.0f} s"


def _drawn(target: str, before: Sample | None, now: Sample, lines_max: int, away: str = "") -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    lines = view(before, now)
    title = [f"{_title(target, now)}; q ends", *([away] if away else [])]
    title += now.notes
    hidden = len(lines) - lines_max + len(title) - 1
    table = Table(
        title=Text("\n".join(title)),
        caption=Text(f"and {hidden} more") if hidden > 0 else None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        expand=True,
    )
    for number, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=True)
    for line in lines[: len(lines) - max(0, hidden)]:
        table.add_row(line.kind, Text(line.name), *(_figure(figure, ",") for figure in line.figures))
    return table


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """Read single keys; yield a function that waits, and returns whether q was pressed."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    import termios
    import tty

    keyboard = sys.stdin.fileno()
    settings = termios.tcgetattr(keyboard)

    def is_ended_within(wait_s: float) -> bool:
        until = time.monotonic() + wait_s
        while (remaining_s := until - time.monotonic()) > 0:
            if select.select([keyboard], [], [], remaining_s)[0]:
                pressed = os.read(keyboard, 100)
                # No bytes at all: the terminal is closed.
                if not pressed or b"q" in pressed.lower():
                    return True
        return False

    try:
        tty.setcbreak(keyboard)
        yield is_ended_within
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)


def _sleep(wait_s: float) -> bool:
    time.sleep(wait_s)
    return False
