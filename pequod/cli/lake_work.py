"""lake run and compact: the workers of a lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pequod.cli.connection import Json
from pequod.cli.exits import ExitCode, fail, say
from pequod.cli.lake_serve import Location, opened_lake
from pequod.cli.spark import DEFAULT_MASTER, Master
from pequod.cli.spark_checks import check_options
from pequod.cli.teaching import examples
from pequod.cli.text import json_line

if TYPE_CHECKING:
    from pequod_lake import Lake, StageLimits
    from pequod_lake.slices import Bulk
    from pequod_lake.worker import StepReport

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

app: Final = typer.Typer()

SparkRows = Annotated[
    int | None,
    typer.Option(
        "--spark-rows",
        min=0,
        metavar="NUMBER",
        help="Spark does steps with more rows of a table; 0: never. If left out, 20000000 where Spark is installed.",
    ),
]
RangeRows = Annotated[
    int,
    typer.Option(
        "--range-rows",
        min=1,
        max=4_000_000,
        metavar="NUMBER",
        help="The most rows of a file of the authority; one that an update touches is written anew.",
    ),
]
_RANGE_ROWS: Final = 1_000_000
#: How often `lake run --keep` deletes.
_SWEEP_S: Final = 60.0


@app.command("run", epilog=examples("pequod lake run lake", "pequod lake run lake --workers 2 --until-done --json"))
def run(
    location: Location,
    workers: Annotated[int, typer.Option("--workers", min=1, metavar="NUMBER", help="Steps at a time.")] = 1,
    until_done: Annotated[bool, typer.Option("--until-done", help="End when there is nothing to do.")] = False,
    authority_after: Annotated[
        str, typer.Option("--authority-after", metavar="AGE", help="Rows are in the authority after this time.")
    ] = "60s",
    delta_ratio: Annotated[
        float,
        typer.Option(
            "--delta-ratio",
            min=0.0,
            metavar="SHARE",
            help="The share of the authority's rows that may stand beside its files; 0: none, so reads are cheapest.",
        ),
    ] = 0.125,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep",
            metavar="AGE",
            help="Delete the files of older states each minute, and SCUs as they came. If left out, only "
            "`pequod lake expire` deletes.",
        ),
    ] = None,
    spark_rows: SparkRows = None,
    range_rows: RangeRows = _RANGE_ROWS,
    master: Master = DEFAULT_MASTER,
    json: Json = False,
) -> None:
    """Sort and merge what came in, until Ctrl-C; any number of these may run side by side.

    A worker that dies leaves nothing broken: another one does its step again. Tables of which a step has more than
    --spark-rows rows are sorted and merged by Spark, which uses all cores of this machine.
    """
    from threading import Event, Thread

    with opened_lake(location) as lake, _bulk(lake, spark_rows, range_rows, master) as (bulk, limits):
        from pequod_lake import MergePolicy

        policy = MergePolicy(authority_after_s=age_s(authority_after), delta_ratio=delta_ratio)
        sweep = _Sweep(lake, None if keep is None else age_s(keep))
        crew = [lake.worker(policy, limits, bulk=bulk) for _ in range(workers)]
        stop, failures = Event(), list[BaseException]()

        def work(number: int) -> None:
            try:
                if until_done:
                    crew[number].drain(lambda report: _tell(report, json=json))
                else:
                    crew[number].run(stop, lambda report: _tell(report, json=json))
            except BaseException as error:
                failures.append(error)
                stop.set()

        threads = [Thread(target=work, args=(number,), daemon=True) for number in range(workers)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                threads[0].join(0.2)
                sweep.if_due()
        except KeyboardInterrupt:
            say("ending after the present steps")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
            for worker in crew:
                worker.close()
        if failures:
            raise failures[0]
        sweep.now()


class _Sweep:
    """Deletes the files of older states each minute, if an age is given."""

    def __init__(self, lake: Lake, keep_s: float | None) -> None:
        self._lake = lake
        self._keep_s = keep_s
        self._next_s = monotonic() + _SWEEP_S

    def if_due(self) -> None:
        """Delete them if a minute has passed since the last time."""
        if monotonic() >= self._next_s:
            self.now()

    def now(self) -> None:
        """Delete them; a lake that is busy has it done the next time."""
        from pequod_lake.errors import LakeBusyError

        self._next_s = monotonic() + _SWEEP_S
        if self._keep_s is not None:
            with suppress(LakeBusyError):
                self._lake.expire(self._keep_s)


@app.command("compact", epilog=examples("pequod lake compact lake"))
def compact(
    location: Location,
    spark_rows: SparkRows = None,
    range_rows: RangeRows = _RANGE_ROWS,
    master: Master = DEFAULT_MASTER,
    json: Json = False,
) -> None:
    """Bring everything that is committed now into the authority."""
    with opened_lake(location) as lake, _bulk(lake, spark_rows, range_rows, master) as (bulk, limits):
        worker = lake.worker(limits=limits, bulk=bulk)
        try:
            worker.compact(lambda report: _tell(report, json=json))
        finally:
            worker.close()


@contextmanager
def _bulk(lake: Lake, rows: int | None, range_rows: int, master: str) -> Iterator[tuple[Bulk | None, StageLimits]]:
    """Yield what does the large steps, None if this process does all of them; and how much a step does at a time."""
    from pequod_lake import StageLimits

    limits = StageLimits(range_rows=range_rows)
    limits = replace(limits, bulk_rows=rows) if rows else limits
    if rows == 0 or (rows is None and not _has_spark()):
        yield None, limits
        return
    from pequod_spark.lake_bulk import SparkBulk
    from pequod_spark.session import SparkUnavailableError, require_spark

    if rows is not None:
        check_options(master, None)
        try:
            require_spark()
        except SparkUnavailableError as error:
            fail(ExitCode.REFUSED, str(error))
    bulk = SparkBulk(lake.place.name, master)
    try:
        yield bulk, limits
    finally:
        bulk.close()


def _has_spark() -> bool:
    """Return whether Spark seems to be installed; nothing is started to find out."""
    from importlib.util import find_spec

    from pequod_spark.session import SparkUnavailableError, find_java

    try:
        find_java()
    except SparkUnavailableError:
        return False
    return find_spec("pyspark") is not None


def _tell(report: StepReport, *, json: bool) -> None:
    step = report.step
    if json:
        line: dict[str, object] = {"step": step.kind.value, "first_scu": step.runs[0].first_scu}
        line |= {"last_scu": step.runs[-1].last_scu, "rows": report.row_count}
        print(json_line(line | {"elapsed_s": report.elapsed_s, "cpu_s": report.cpu_s}), flush=True)
    else:
        print(f"{step}: {report.row_count:,} rows, {report.elapsed_s:.2f} s", flush=True)


def age_s(text: str) -> float:
    """Return the seconds that a text such as 90s or 5m says, or end the command."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS_S or not number.replace(".", "", 1).isdecimal():
        fail(ExitCode.USAGE, f"{text!r} is no age; write 90s, 5m, 1h or 7d")
    return float(number) * _UNITS_S[unit]
